"""A policer: packets within rate and burst pass at once, the rest are dropped; nothing waits.

A token bucket, and here rightly so: that is what a carrier's policer is. The bucket starts full, fills with what the
line could carry, and holds at most the burst. Exact integers, in the bit-nanoseconds of `acespec.sim.curve`.
"""

from __future__ import annotations

from acespec.sim.curve import WORK_PER_BYTE
from acespec.sim.line import Line


class Policer:
    """Asked in order of time."""

    __slots__ = ("_burst", "_last", "_level", "_line")

    def __init__(self, line: Line, burst_bytes: int) -> None:
        self._line = line
        self._level = self._burst = burst_bytes * WORK_PER_BYTE
        self._last = 0

    def admits(self, t: int, wire: int) -> bool:
        """Whether a packet of `wire` bytes conforms at `t`; if so it is paid for."""
        self._level = min(self._burst, self._level + self._line.carried(self._last, t))
        self._last = t
        if self._level < wire * WORK_PER_BYTE:
            return False
        self._level -= wire * WORK_PER_BYTE
        return True
