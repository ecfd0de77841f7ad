"""Times at which a link carries nothing: given or drawn, merged, and how work stretches across them.

A packet under way when the link goes down pauses and goes on afterwards; nothing is lost and the order is kept.
All times are nanoseconds from the start of the link.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from acespec.proto.errors import UsageError
from acespec.sim.drawn import exponential_ns
from acespec.sim.units import ns_from_s

Span = tuple[int, int]


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
        return cls(*_two_numbers(text, f"cannot read outage {text!r}: write START:DURATION in seconds, such as 20:5"))


@dataclass(frozen=True, slots=True)
class OnOff:
    """A link that goes down at random: up and down for exponential times of these means. It starts up."""

    mean_up_s: float
    mean_down_s: float

    def __post_init__(self) -> None:
        if not (0.01 <= self.mean_up_s < 1e9 and 0.01 <= self.mean_down_s < 1e9):
            raise UsageError(
                f"on_off {self.mean_up_s}:{self.mean_down_s} makes no sense: "
                "give MEAN_UP and MEAN_DOWN, both 0.01 seconds or more"
            )

    @classmethod
    def parse(cls, text: str) -> OnOff:
        """Reads `MEAN_UP:MEAN_DOWN` in seconds, such as `120:5`. Raises UsageError."""
        return cls(
            *_two_numbers(text, f"cannot read on_off {text!r}: write MEAN_UP:MEAN_DOWN in seconds, such as 120:5")
        )

    def spans(self, stream: Random) -> Iterator[Span]:
        """Endless (begin, end) of the times down."""
        t = 0
        while True:
            begin = t + exponential_ns(stream, self.mean_up_s)
            t = begin + exponential_ns(stream, self.mean_down_s)
            yield begin, t


class OutageCalendar:
    """Merged outages, searchable by time. Work never proceeds inside one.

    `drawn` are further ones in order of time, perhaps without end; they are taken only as far as the questions go.
    """

    __slots__ = ("_coming", "_ends", "_starts")

    def __init__(self, outages: Iterable[Outage] = (), drawn: Iterable[Span] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        given = sorted((ns_from_s(o.start_s), ns_from_s(o.start_s + o.duration_s)) for o in outages)
        self._coming: Iterator[Span] | None = _merged(heapq.merge(given, drawn))

    def up_from(self, t: int) -> int:
        """The first moment at or after `t` at which the link carries."""
        self._reach(t)
        index = bisect_right(self._starts, t) - 1
        return max(t, self._ends[index]) if index >= 0 else t

    def next_down(self, t: int) -> Span | None:
        """The first outage that begins after `t`."""
        self._reach(t)
        index = bisect_right(self._starts, t)
        return (self._starts[index], self._ends[index]) if index < len(self._starts) else None

    def finish(self, start: int, work: int) -> int:
        """When `work` ns of carrying, begun at `start` (a moment when the link is up), are done."""
        end, t = start + work, start
        while (down := self.next_down(t)) is not None and down[0] < end:
            t = down[0]
            end += down[1] - t
        return end

    def _reach(self, t: int) -> None:
        """Makes sure that the first outage after `t` is listed, and all before it."""
        while self._coming is not None and (not self._starts or self._starts[-1] <= t):
            span = next(self._coming, None)
            if span is None:
                self._coming = None
            else:
                self._starts.append(span[0])
                self._ends.append(span[1])


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Spans in order of their beginning, joined where they touch."""
    pending: Span | None = None
    for begin, end in spans:
        if pending is None:
            pending = begin, end
        elif begin <= pending[1]:
            pending = pending[0], max(pending[1], end)
        else:
            yield pending
            pending = begin, end
    if pending is not None:
        yield pending


def _two_numbers(text: str, complaint: str) -> tuple[float, float]:
    first, colon, second = text.partition(":")
    try:
        if not colon:
            raise ValueError
        return float(first), float(second)
    except ValueError:
        raise UsageError(complaint) from None
