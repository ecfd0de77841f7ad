"""Times at which a link carries nothing: parsing, merging, and how work stretches across them.

A packet under way when the link goes down pauses and goes on afterwards; nothing is lost and the order is kept.
All times are nanoseconds from the start of the link.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from acespec.proto.errors import UsageError
from acespec.sim.units import ns_from_s


@dataclass(frozen=True, slots=True)
class Outage:
    """The link is down from `start_s` for `duration_s` seconds, counted from the start of the link."""

    start_s: float
    duration_s: float

    def __post_init__(self) -> None:
        if not (0 <= self.start_s < 1e9 and 0 < self.duration_s < 1e9):
            raise UsageError(
                f"outage {self.start_s}:{self.duration_s} makes no sense: "
                "give START >= 0 and DURATION > 0, both in seconds"
            )

    @classmethod
    def parse(cls, text: str) -> Outage:
        """Reads `START:DURATION` in seconds, such as `20:5`. Raises UsageError."""
        start, colon, duration = text.partition(":")
        try:
            if not colon:
                raise ValueError
            return cls(float(start), float(duration))
        except ValueError:
            raise UsageError(f"cannot read outage {text!r}: write START:DURATION in seconds, such as 20:5") from None


class OutageCalendar:
    """Merged outages, searchable by time. Work never proceeds inside one."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, outages: Iterable[Outage] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        spans = sorted((ns_from_s(o.start_s), ns_from_s(o.start_s + o.duration_s)) for o in outages)
        for start, end in spans:
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def up_from(self, t: int) -> int:
        """The first moment at or after `t` at which the link carries."""
        index = bisect_right(self._starts, t) - 1
        return max(t, self._ends[index]) if index >= 0 else t

    def finish(self, start: int, work: int) -> int:
        """When `work` ns of carrying, begun at `start` (a moment when the link is up), are done."""
        end = start + work
        for index in range(bisect_right(self._starts, start), len(self._starts)):
            if self._starts[index] >= end:
                break
            end += self._ends[index] - self._starts[index]
        return end
