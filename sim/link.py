"""One direction of a narrow link, as a pure function of arrivals: no clock, no I/O.

The link is a serialiser. It remembers one number, the moment at which its last packet will have left (the Lindley
recursion of a FIFO queue), so that a small packet pays its own transmission time; a token bucket, always full for small
messages, would let them pass at no cost. Propagation comes after serialisation and never holds the link.

    start   = max(t, free), moved past outages and zero-rate slots
    finish  = when the rate, integrated from start, has carried nbytes + header; rounded up
    release = max(finish + delay at finish + jitter, last release)

The queue is bounded in bytes and drops from the tail. In mode "police" there is no queue: what conforms passes at once
(start = finish = t), the rest is dropped. Jitter is exponential: one-sided, since the propagation delay is a floor,
with its mean equal to its standard deviation. Times are nanoseconds from the start of the link.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Literal

from acespec.proto.errors import UsageError
from acespec.sim.delay import DelayCurve
from acespec.sim.line import Direction, make_line
from acespec.sim.loss import LossProcess
from acespec.sim.policer import Policer
from acespec.sim.spec import LinkSpec
from acespec.sim.units import ns_from_ms

__all__ = ["Direction", "Drop", "DropReason", "LinkDirection", "LinkSpec", "Medium", "Passage", "make_link"]

DropReason = Literal["queue", "loss", "police", "outage"]


@dataclass(frozen=True, slots=True)
class Passage:
    """A packet that gets across: it occupies the link in [start, finish] and is handed over at `release`."""

    start: int
    finish: int
    release: int
    wire: int


@dataclass(frozen=True, slots=True)
class Drop:
    """A packet that does not get across. Lost ones used the link in [start, finish]; refused ones never did.

    Refused by a full queue, by the policer, or by a policed link that is down and has no queue to wait in.
    """

    reason: DropReason
    start: int
    finish: int
    wire: int

    @property
    def refused(self) -> bool:
        """Whether the packet never got onto the link."""
        return self.reason != "loss"


class Medium:
    """The moment from which the line is free; the two directions of a half-duplex link share one."""

    __slots__ = ("free",)

    def __init__(self) -> None:
        self.free = 0


class LinkDirection:
    """Books packets on one direction of a link, in order of arrival, deterministically for a seed."""

    def __init__(self, spec: LinkSpec, direction: Direction, medium: Medium | None = None) -> None:
        self._line = make_line(spec, direction)
        self._delay = ns_from_ms(spec.delay_ms)
        self._delay_steps = DelayCurve(spec.delay_ms, spec.delay_steps) if spec.delay_steps else None
        self._jitter = ns_from_ms(spec.jitter_ms)
        self._queue_bytes = spec.queue_bytes
        self._header = spec.overhead_bytes
        self._medium = medium or Medium()
        self._policer = Policer(self._line, spec.burst_bytes) if spec.mode == "police" else None
        # One stream per purpose, made only if needed: a stream costs 2.5 KB, and turning one on must shift no other.
        name = f"{spec.seed}:{direction}"
        self._jitter_stream = Random(f"{name}:jitter") if self._jitter else None
        self._loss = LossProcess(spec.loss, name) if spec.loss_percent else None
        self._waiting: deque[tuple[int, int]] = deque()
        self._waiting_bytes = 0
        self._last_offer = 0
        self._last_release = 0

    def offer(self, t: int, nbytes: int, header: int | None = None) -> Passage | Drop:
        """Books a packet of `nbytes` plus header (the spec's overhead unless given) that arrives at `t`.

        Arrivals must come in order of time; raises UsageError otherwise.
        """
        if t < self._last_offer:
            raise UsageError(f"packet offered at {t} ns after one at {self._last_offer} ns: offer in order of time")
        self._last_offer = t
        wire = nbytes + (self._header if header is None else header)
        if self._policer is not None:
            return self._police(self._policer, t, wire)
        start = self._next_start(t)
        if start > t:
            if self.waiting_bytes(t) + wire > self._queue_bytes:
                return Drop("queue", t, t, wire)
            self._enqueue(start, wire)
        finish = self._medium.free = self._line.finish(start, wire)
        return self._carry(start, finish, wire)

    def waiting_bytes(self, t: int) -> int:
        """Wire bytes that wait at `t` behind the packet in service."""
        while self._waiting and self._waiting[0][0] <= t:
            self._waiting_bytes -= self._waiting.popleft()[1]
        return self._waiting_bytes

    def room_at(self, t: int, nbytes: int, header: int | None = None) -> int:
        """The first moment at or after `t` at which such a packet finds room: how long a polite sender waits.

        A policer gives no sign to wait for: its answer is `t`.
        """
        wire = nbytes + (self._header if header is None else header)
        surplus = self.waiting_bytes(t) + wire - self._queue_bytes
        if self._policer is not None or surplus <= 0 or self._next_start(t) <= t:
            return t
        for start, size in self._waiting:
            surplus -= size
            if surplus <= 0:
                return start
        return self._next_start(t)

    def up_from(self, t: int) -> int:
        """The first moment at or after `t` that is in no outage."""
        return self._line.up_from(t)

    def _next_start(self, t: int) -> int:
        return self._line.open_from(max(t, self._medium.free))

    def _enqueue(self, start: int, wire: int) -> None:
        self._waiting.append((start, wire))
        self._waiting_bytes += wire

    def _police(self, policer: Policer, t: int, wire: int) -> Passage | Drop:
        if self._line.open_from(t) > t:
            return Drop("outage", t, t, wire)
        if not policer.admits(t, wire):
            return Drop("police", t, t, wire)
        return self._carry(t, t, wire)

    def _carry(self, start: int, finish: int, wire: int) -> Passage | Drop:
        # A packet that will be lost has its jitter and its place in the order too: so loss moves no other packet.
        release = self._release_after(finish)
        if self._loss is not None and self._loss.takes_next():
            return Drop("loss", start, finish, wire)
        return Passage(start, finish, release, wire)

    def _release_after(self, finish: int) -> int:
        delay = self._delay if self._delay_steps is None else self._delay_steps.at(finish)
        self._last_release = max(finish + delay + self._draw_jitter(), self._last_release)
        return self._last_release

    def _draw_jitter(self) -> int:
        if self._jitter_stream is None:
            return 0
        return int(-math.log(1.0 - self._jitter_stream.random()) * self._jitter)


def make_link(spec: LinkSpec) -> tuple[LinkDirection, LinkDirection]:
    """The (up, down) directions of one edge's link, on one medium if it is half-duplex."""
    medium = Medium() if spec.half_duplex else None
    return LinkDirection(spec, "up", medium), LinkDirection(spec, "down", medium)
