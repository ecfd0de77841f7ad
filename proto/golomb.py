"""Token ids in fewer bits than ceil(log2 V): small ids are frequent, so they get short codes.

A byte-pair vocabulary numbers its tokens in the order of their merges, the most frequent first; on text the bits of
an id are spread about evenly from 9 up. So an id is written in the exponential Golomb code of order 9 (Teuhola, 1978):
id // 512 + 1 in Elias' gamma code, then id mod 512 in nine bits. It needs no state, so the ends cannot differ about it.
`bench/draft_codec.py` measures it beside codes that learn from the text.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from acespec.proto.bits import BitReader, BitWriter

ORDER = 9
"""Best, or within 0.1 bits of the best, for each vocabulary and text that was tried."""
_ONE = 1 << ORDER


class Codec(enum.IntEnum):
    """How an edge packs the tokens of its drafts; values are those of the wire."""

    RAW = 1
    """ceil(log2 V) bits each."""
    GOLOMB = 2
    """By this module, or raw if that is not longer for the message."""


def golomb_bits(tokens: Iterable[int]) -> int:
    """Bits of `tokens` in this code."""
    return sum(2 * (token + _ONE).bit_length() - 1 - ORDER for token in tokens)


def write_golomb(out: BitWriter, token: int) -> None:
    """Append `token`."""
    number = token + _ONE  # The gamma code's digits and the nine low bits, behind as many zeros as the former want.
    out.write(number, 2 * number.bit_length() - 1 - ORDER)


def read_golomb(bits: BitReader) -> int:
    """The next token. Raises BadFrame beyond the end, and on longer codes than any id has."""
    return (bits.read_gamma() - 1 << ORDER) | bits.read(ORDER)
