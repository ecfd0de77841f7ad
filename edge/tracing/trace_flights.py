"""When each message of a trace left and arrived: the edge's clock sees one end of each, the other is worked out.

A round trip is known for each message that a commit acknowledges. Of it the way down is taken to be half of the least
round trip, and what is left the way up: there drafts queue up. A message that no commit measured arrives in its turn
between its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from acespec.edge.tracing.trace_reader import Trace
from acespec.edge.watch import CommitSeen, Outage, Sent, Served

GUESSED_RTT_S = 0.1
"""Round trip of a trace that has none."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A message: a `Sent` went up, anything else came down. Times in seconds; `lost`: it never arrived."""

    sent: float
    arrived: float
    message: Sent | Served | CommitSeen
    lost: bool = False

    @property
    def up(self) -> bool:
        """It went to the cloud."""
        return isinstance(self.message, Sent)


@dataclass(slots=True)
class _Pending:
    """A message that went up; `arrived` and `acked` once a commit has told."""

    sent: float
    message: Sent
    epoch: int
    arrived: float | None = None
    acked: bool = False


def flights_of(trace: Trace) -> tuple[Flight, ...]:
    """All messages, in the order in which the edge saw them."""
    least = _least_round_trip(trace)
    ups = _ups(trace, least / 2)
    _fill_in(ups, least / 2)
    newest = max((up.epoch for up in ups), default=0)
    up_flights = iter([_up_flight(up, newest) for up in ups])
    flights: list[Flight] = []
    left = 0.0
    for moment in trace.moments:
        match moment.happening:
            case Sent():
                flights.append(next(up_flights))
            case Served() | CommitSeen():
                left = min(max(left, moment.t - least / 2), moment.t)
                flights.append(Flight(left, moment.t, moment.happening))
    return tuple(flights)


def _least_round_trip(trace: Trace) -> float:
    """In seconds, by the acknowledgements; by the opening if there are none."""
    measured = [
        m.happening.rtt_ms / 1000 for m in trace.moments if isinstance(m.happening, CommitSeen) and m.happening.rtt_ms
    ]
    if measured:
        return min(measured)
    opened_at: float | None = None
    for moment in trace.moments:
        if isinstance(moment.happening, Sent) and moment.happening.what == "open":
            opened_at = moment.t
        if isinstance(moment.happening, Served) and opened_at is not None:
            return moment.t - opened_at
    return GUESSED_RTT_S


def _ups(trace: Trace, way: float) -> list[_Pending]:
    """What went up, with the arrivals that commits tell of. `way` is how long one takes at least."""
    ups: list[_Pending] = []
    waiting: list[_Pending] = []
    for moment in trace.moments:
        match moment.happening:
            case Sent() as message:
                if message.what == "open":
                    waiting = []
                ups.append(_Pending(moment.t, message, message.epoch))
                waiting.append(ups[-1])
            case Outage():
                waiting = []
            case Served() as served:
                for up in waiting:
                    if up.message.what == "open":
                        up.arrived, up.acked = max(up.sent, moment.t - way), True
                waiting = [up for up in waiting if up.epoch == served.epoch and not up.acked]
            case CommitSeen() as commit:
                covered = [up for up in waiting if 0 < up.message.frame <= commit.ack]
                if covered:
                    covered[-1].arrived = max(covered[-1].sent, moment.t - commit.held_ms / 1000 - way)
                for up in covered:
                    up.acked = True
                waiting = [up for up in waiting if not up.acked]
                if commit.finish:
                    for up in waiting:
                        up.acked = True  # The turn is over: nothing more is told of them.
    return ups


def _fill_in(ups: list[_Pending], way: float) -> None:
    """Give every message an arrival, in the order of sending. Between two that were measured the time on the way
    changes evenly, as it does while a burst fills the link's queue."""
    known = [(at, up.arrived - up.sent) for at, up in enumerate(ups) if up.arrived is not None]
    last = (-1, way)
    for at, delay in known:
        for between in range(last[0] + 1, at):
            share = (between - last[0]) / (at - last[0])
            ups[between].arrived = ups[between].sent + last[1] + share * (delay - last[1])
        last = at, delay
    latest = float("inf")
    for up in reversed(ups):
        up.arrived = latest = min(latest, up.sent + way if up.arrived is None else up.arrived)
    earliest = 0.0
    for up in ups:
        up.arrived = earliest = max(earliest, up.arrived or 0.0, up.sent)


def _up_flight(up: _Pending, newest: int) -> Flight:
    flight = Flight(up.sent, up.arrived or up.sent, up.message)
    return replace(flight, lost=True) if not up.acked and up.epoch < newest else flight
