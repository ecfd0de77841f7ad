"""Token ids of a commit as bytes: ceil(log2 V) bits each. The reader knows their number."""

from __future__ import annotations

from collections.abc import Sequence

from acespec.proto.bits import BitReader, BitWriter
from acespec.proto.errors import BadFrame
from acespec.proto.nodes import token_bits


def pack_tokens(tokens: Sequence[int], vocab_size: int) -> bytes:
    """The bytes of `tokens`, each below `vocab_size`; no tokens give no bytes."""
    width = token_bits(vocab_size)
    out = BitWriter()
    for token in tokens:
        out.write(token, width)
    return out.getvalue()


def unpack_tokens(data: bytes, count: int, vocab_size: int) -> list[int]:
    """The `count` tokens that `pack_tokens` was given.

    Raises:
        BadFrame: the bytes are not those of `count` tokens of this vocabulary.
    """
    width = token_bits(vocab_size)
    if count < 0 or len(data) != (count * width + 7) // 8:
        raise BadFrame(f"{len(data)} bytes cannot hold exactly {count} tokens of {width} bits")
    bits = BitReader(data)
    tokens = [bits.read(width) for _ in range(count)]
    bits.finish()
    if any(token >= vocab_size for token in tokens):
        raise BadFrame(f"a committed token is outside the vocabulary of {vocab_size}")
    return tokens
