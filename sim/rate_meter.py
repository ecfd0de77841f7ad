"""The most bytes that a link carried in any window of one second, found while packets stream by.

A packet's bytes are spread evenly over [start, finish], as on a wire. The carried amount is then piecewise linear in
time, so the worst window ends where some packet finishes or begins where some packet starts: only those are looked at.
"""

from __future__ import annotations

from collections import deque

from acespec.sim.units import SECOND


class RateMeter:
    """Feed it the packets of one direction in serialisation order; it keeps about two windows of them."""

    __slots__ = ("_peak", "_recent", "_unsettled", "_window")

    def __init__(self, window: int = SECOND) -> None:
        self._window = window
        self._recent: deque[tuple[int, int, int]] = deque()
        self._unsettled: deque[int] = deque()
        self._peak = 0.0

    def add(self, start: int, finish: int, wire: int) -> None:
        """A packet of `wire` bytes occupied the link in [start, finish]."""
        self._settle_windows_before(start)
        self._recent.append((start, finish, wire))
        self._unsettled.append(start)
        self._peak = max(self._peak, self._carried(finish - self._window, finish))
        self._forget_before(min(self._unsettled[0], start - self._window))

    @property
    def peak_kbps(self) -> float:
        """Highest mean rate over any window, in 1000 bit/s."""
        peak = max([self._peak, *(self._carried(begin, begin + self._window) for begin in self._unsettled)])
        return peak * 8 * SECOND / self._window / 1000

    def _settle_windows_before(self, start: int) -> None:
        while self._unsettled and self._unsettled[0] + self._window <= start:
            begin = self._unsettled.popleft()
            self._peak = max(self._peak, self._carried(begin, begin + self._window))

    def _forget_before(self, t: int) -> None:
        while self._recent and self._recent[0][1] <= t:
            self._recent.popleft()

    def _carried(self, begin: int, end: int) -> float:
        return sum(
            wire * max(0, min(finish, end) - max(start, begin)) / max(1, finish - start)
            for start, finish, wire in self._recent
        )
