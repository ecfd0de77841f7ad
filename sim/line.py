"""When a line is open and how long bytes occupy it: a rate, constant or varying, with outages cut out of it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Literal, Protocol

from acespec.sim.curve import WORK_PER_BYTE, Curve, DrawnCurve, LoopedCurve, open_from
from acespec.sim.markov_rate import walk
from acespec.sim.outages import OutageCalendar
from acespec.sim.rate import MarkovRate, RateTrace
from acespec.sim.units import bps_from_kbps, serialisation_ns

if TYPE_CHECKING:
    from acespec.sim.spec import LinkSpec

Direction = Literal["up", "down"]
DIRECTIONS: tuple[Direction, Direction] = ("up", "down")


class Line(Protocol):
    """One direction's serialiser without its state: a pure function of time, in nanoseconds."""

    def up_from(self, t: int) -> int:
        """The first moment at or after `t` that is in no outage."""

    def open_from(self, t: int) -> int:
        """The first moment at or after `t` at which bytes move: no outage and no zero-rate slot."""

    def finish(self, start: int, nbytes: int) -> int:
        """When `nbytes` begun at `start` (an open moment) are through, rounded up."""

    def carried(self, begin: int, end: int) -> int:
        """What the line can carry in [begin, end], in bit-nanoseconds (see `acespec.sim.curve`)."""


class ConstantLine:
    """The common case, with nothing to integrate."""

    __slots__ = ("_bps", "_calendar")

    def __init__(self, bps: int, calendar: OutageCalendar) -> None:
        self._bps = bps
        self._calendar = calendar

    def up_from(self, t: int) -> int:
        """The first moment at or after `t` that is in no outage."""
        return self._calendar.up_from(t)

    def open_from(self, t: int) -> int:
        """The same: the rate is never zero."""
        return self._calendar.up_from(t)

    def finish(self, start: int, nbytes: int) -> int:
        """When `nbytes` begun at `start` are through."""
        return self._calendar.finish(start, serialisation_ns(nbytes, self._bps))

    def carried(self, begin: int, end: int) -> int:
        """Rate times the time that the link is up in [begin, end]."""
        return self._bps * sum(last - first for first, last in _up_times(self._calendar, begin, end))


class VaryingLine:
    """A rate that goes on changing, outage or not: time passes for both."""

    __slots__ = ("_calendar", "_curve")

    def __init__(self, curve: Curve, calendar: OutageCalendar) -> None:
        self._curve = curve
        self._calendar = calendar

    def up_from(self, t: int) -> int:
        """The first moment at or after `t` that is in no outage."""
        return self._calendar.up_from(t)

    def open_from(self, t: int) -> int:
        """The first moment at or after `t` at which the link is up and its rate above zero."""
        while (later := open_from(self._curve, self._calendar.up_from(t))) > t:
            t = later
        return t

    def finish(self, start: int, nbytes: int) -> int:
        """When the integral of the rate from `start`, outages left out, reaches `nbytes`."""
        if nbytes == 0:
            return start
        t, work = start, nbytes * WORK_PER_BYTE
        while (down := self._calendar.next_down(t)) is not None:
            done = self._carried(t, down[0])
            if done >= work:
                break
            work -= done
            t = down[1]
        return self._curve.time_of(self._curve.carried_by(t) + work)

    def carried(self, begin: int, end: int) -> int:
        """The integral of the rate over [begin, end], outages left out."""
        return sum(self._carried(first, last) for first, last in _up_times(self._calendar, begin, end))

    def _carried(self, begin: int, end: int) -> int:
        return self._curve.carried_by(end) - self._curve.carried_by(begin)


def _up_times(calendar: OutageCalendar, begin: int, end: int) -> list[tuple[int, int]]:
    """The parts of [begin, end] that are in no outage."""
    times = []
    t = calendar.up_from(begin)
    while t < end:
        down = calendar.next_down(t)
        if down is None or down[0] >= end:
            times.append((t, end))
            break
        times.append((t, down[0]))
        t = down[1]
    return times


def make_line(spec: LinkSpec, direction: Direction) -> Line:
    """The line of one direction. What is drawn comes from the spec's seed: rates per direction, outages for both."""
    calendar = OutageCalendar(spec.outages, spec.on_off.spans(Random(f"{spec.seed}:outages")) if spec.on_off else ())
    match spec.rate(direction):
        case RateTrace() as trace:
            return VaryingLine(LoopedCurve(trace.steps()), calendar)
        case MarkovRate() as chain:
            return VaryingLine(DrawnCurve(walk(chain, Random(f"{spec.seed}:{direction}:rate"))), calendar)
        case kbps:
            return ConstantLine(bps_from_kbps(kbps), calendar)
