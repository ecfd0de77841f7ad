"""Seeds of the n answers to one request: all follow from its one seed, so that each can be had again alone.

Answer 0 uses the request's own seed: the first of n answers is the answer that n = 1 gives. Answer i > 0 uses the
first eight bytes, little endian, of BLAKE2b (RFC 7693) over the seed and i, both as 64 bits little endian, personalised
with `acespec n`.
"""

from __future__ import annotations

from hashlib import blake2b

PERSON = b"acespec n"
"""Keeps these digests apart from all others that we take."""
MASK = (1 << 64) - 1


def choice_seed(seed: int, index: int) -> int:
    """The 64-bit seed of answer `index`, from 0, to a request with `seed` (taken modulo 2^64).

    Raises:
        ValueError: the index is negative.
    """
    if index < 0:
        raise ValueError(f"answer {index} does not exist: answers count from 0")
    if index == 0:
        return seed & MASK
    data = (seed & MASK).to_bytes(8, "little") + index.to_bytes(8, "little")
    return int.from_bytes(blake2b(data, digest_size=8, person=PERSON).digest(), "little")
