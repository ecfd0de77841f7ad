"""How far two id sequences agree."""

from __future__ import annotations

from collections.abc import Sequence


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix.

    Whole slices are compared and bisected, since a list comparison runs at C speed and a loop over ids does not.
    """
    low, high = 0, min(len(a), len(b))
    left, right = list(a[:high]), list(b[:high])
    if left == right:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
