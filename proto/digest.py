"""Rolling digest of a token prefix: both ends compare 16 bytes instead of thousands of ids.

A chain of BLAKE2b (RFC 7693) with 16-byte output: d(0) = zeros, d(n) = blake2b(d(n-1) || token n-1 as 32-bit
little endian). It names the whole prefix, grows by one token in about a microsecond, and any earlier length can be
asked for, since the edge and the cloud are rarely at the same one.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

SIZE = 16
"""Bytes of a digest."""

EMPTY = bytes(SIZE)
"""The digest of the empty prefix."""


def extend(digest: bytes, tokens: Iterable[int]) -> bytes:
    """The digest of the prefix named by `digest` with `tokens` (each 0 .. 2^32-1) behind it."""
    for token in tokens:
        digest = blake2b(digest + token.to_bytes(4, "little"), digest_size=SIZE).digest()
    return digest


def short(digest: bytes) -> int:
    """The first 32 bits, as a number: enough for the check that every commit carries."""
    return int.from_bytes(digest[:4], "little")


class PrefixDigest:
    """Digests of every prefix of a growing token sequence; 16 bytes of memory a token."""

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._chain = bytearray(EMPTY)
        self.extend(tokens)

    @property
    def length(self) -> int:
        """Tokens so far."""
        return len(self._chain) // SIZE - 1

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens."""
        digest = bytes(self._chain[-SIZE:])
        for token in tokens:
            digest = extend(digest, (token,))
            self._chain += digest

    def at(self, length: int) -> bytes:
        """The digest of the first `length` tokens. Raises IndexError if there are fewer."""
        self._check(length)
        return bytes(self._chain[length * SIZE : (length + 1) * SIZE])

    def truncate(self, length: int) -> None:
        """Forget all tokens from `length` on. Raises IndexError if there are fewer."""
        self._check(length)
        del self._chain[(length + 1) * SIZE :]

    def _check(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise IndexError(f"no digest at length {length}: the sequence holds {self.length} tokens")
