"""How much a varying line can carry by a given time, and when it will have carried a given amount: exact integers.

A rate is integrated, not sampled. The unit of work is the bit-nanosecond: one bit a second for one nanosecond, so
1e-9 bits, in which every sum below is a whole number. `carried_by(t)` is the integral of the rate from 0 to t;
`time_of(work)` is its inverse, rounded up to a nanosecond, so that no packet ever beats the rate.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Protocol

from acespec.sim.units import SECOND

WORK_PER_BYTE = 8 * SECOND
"""Bit-nanoseconds that one byte takes."""


class Curve(Protocol):
    """A non-decreasing integral of a rate that never stays at zero for ever."""

    def carried_by(self, t: int) -> int:
        """Work that the line can do in [0, t]."""

    def time_of(self, work: int) -> int:
        """The first moment by which `work` (above 0) can be done."""


def open_from(curve: Curve, t: int) -> int:
    """The first moment at or after `t` from which the rate is above zero."""
    # One nanosecond of any rate is at least one unit of work, so the first unit ends 1 ns after the slot begins.
    return curve.time_of(curve.carried_by(t) + 1) - 1


class _Steps:
    """Slots laid end to end from time 0, searchable by time and by work."""

    __slots__ = ("_rates", "_starts", "_work_before", "length", "work")

    def __init__(self, steps: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._rates: list[int] = []
        self._work_before: list[int] = []
        self.length = self.work = 0
        for length, bps in steps:
            self.append(length, bps)

    def append(self, length: int, bps: int) -> None:
        """Adds a slot of `length` ns at `bps`."""
        self._starts.append(self.length)
        self._rates.append(bps)
        self._work_before.append(self.work)
        self.length += length
        self.work += length * bps

    def carried_by(self, t: int) -> int:
        """Work in [0, t], for t within the slots."""
        slot = bisect_right(self._starts, t) - 1
        return self._work_before[slot] + self._rates[slot] * (t - self._starts[slot])

    def time_of(self, work: int) -> int:
        """When `work` is done, for 0 < work <= self.work."""
        slot = bisect_left(self._work_before, work) - 1
        rounded_up = -(-(work - self._work_before[slot]) // self._rates[slot])
        return self._starts[slot] + rounded_up


class LoopedCurve:
    """Slots that repeat for ever, found without unrolling them."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Iterable[tuple[int, int]]) -> None:
        self._steps = _Steps(steps)

    def carried_by(self, t: int) -> int:
        """Work that the line can do in [0, t]."""
        loops, within = divmod(t, self._steps.length)
        return loops * self._steps.work + self._steps.carried_by(within)

    def time_of(self, work: int) -> int:
        """The first moment by which `work` (above 0) can be done."""
        loops, rest = divmod(work - 1, self._steps.work)
        return loops * self._steps.length + self._steps.time_of(rest + 1)


class DrawnCurve:
    """Slots drawn one after another without end; only as many are drawn as the questions need."""

    __slots__ = ("_coming", "_steps")

    def __init__(self, steps: Iterator[tuple[int, int]]) -> None:
        self._coming = steps
        self._steps = _Steps()

    def carried_by(self, t: int) -> int:
        """Work that the line can do in [0, t]."""
        while self._steps.length <= t:
            self._steps.append(*next(self._coming))
        return self._steps.carried_by(t)

    def time_of(self, work: int) -> int:
        """The first moment by which `work` (above 0) can be done."""
        while self._steps.work < work:
            self._steps.append(*next(self._coming))
        return self._steps.time_of(work)
