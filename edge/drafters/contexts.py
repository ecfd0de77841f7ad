"""Keys for the contexts (last 1, 2, 3, ... ids) before a position: what n-gram lookups are indexed by."""

from __future__ import annotations

from collections.abc import Sequence

_MASK = (1 << 64) - 1
_MULTIPLIER = 0x9E3779B97F4A7C15


def context_keys(tokens: Sequence[int], end: int, longest: int) -> list[int]:
    """64-bit keys of the contexts of 1, 2, .. `longest` ids that end just before position `end`.

    Built backwards from the nearest id, so one pass yields every length; fewer keys near the start of the text. The
    keys are the same on every machine (they are stored on disk). Two contexts share a key with chance 2**-64, which
    would cost one bad draft.
    """
    keys: list[int] = []
    key = 0
    for at in range(end - 1, max(end - longest, 0) - 1, -1):
        key = ((key ^ (tokens[at] + 1)) * _MULTIPLIER) & _MASK
        key ^= key >> 31
        keys.append(key)
    return keys
