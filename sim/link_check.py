"""Proves from a packet log that the link kept its rules: rate, order, delay, queue bound, and the recursion of a queue.

The log is replayed packet by packet against the spec in its header; nothing is taken from `LinkDirection`. The rate is
held over *every* window from the start of one packet to the finish of another, in whole numbers and one pass: with B
bytes carried so far and C what the line could carry so far, B - C must never grow by more than the burst between a
start and a later finish. The first packet that breaks a rule ends the check.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from acespec.sim.curve import WORK_PER_BYTE
from acespec.sim.delay import DelayCurve
from acespec.sim.line import Direction, make_line
from acespec.sim.log_check import REFUSED, LinkSummary, Summariser
from acespec.sim.packet_log import PacketRecord, read_records, read_spec
from acespec.sim.packets import RST_HEADER, SYN_HEADER
from acespec.sim.spec import LinkSpec

Rule = Literal["order", "bytes", "rate", "serialiser", "queue", "policer", "delay", "loss"]
HEADERS = {"syn": SYN_HEADER, "syn-ack": SYN_HEADER, "rst": RST_HEADER, "packet": 0}
FIRST_RECORD_LINE = 2


@dataclass(frozen=True, slots=True)
class Violation:
    """The first packet that broke a rule. `line` counts the log's lines from 1, its header included."""

    line: int
    rule: Rule
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was checked, and the first violation if there is one."""

    link: str
    packets: int
    summary: LinkSummary
    violation: Violation | None

    @property
    def ok(self) -> bool:
        """Whether every packet kept every rule."""
        return self.violation is None

    def line(self) -> str:
        """One line for a person."""
        if self.violation is not None:
            return f"{self.link}: line {self.violation.line} breaks the {self.violation.rule}: {self.violation.message}"
        s = self.summary
        return (
            f"{self.link}: {self.packets} packets in {s.seconds:.1f} s kept rate, order, delay and queue; "
            f"up {s.up_wire} B, down {s.down_wire} B; most in any second: up {s.up_peak_kbps_1s:.2f} Kbps, "
            f"down {s.down_peak_kbps_1s:.2f}; lost {s.lost}, refused {s.refused}"
        )

    def as_json(self) -> dict[str, object]:
        """The same for machines."""
        return {"ok": self.ok, **asdict(self)}


def check_log(path: str | os.PathLike[str]) -> CheckReport:
    """Checks a log file. Raises UsageError if it is none."""
    return check_records(read_spec(path), read_records(path))


def check_records(spec: LinkSpec, records: Iterable[PacketRecord]) -> CheckReport:
    """Checks packets in booking order; lines are numbered as in a file."""
    medium = _Free() if spec.half_duplex else None
    replays: dict[Direction, _Replay] = {"up": _Replay(spec, "up", medium), "down": _Replay(spec, "down", medium)}
    summariser, count = Summariser(), 0
    for number, record in enumerate(records, start=FIRST_RECORD_LINE):
        for rule, message in replays[record.dir].faults(record):
            return CheckReport(spec.name, count, summariser.result(), Violation(number, rule, message))
        summariser.add(record)
        count += 1
    return CheckReport(spec.name, count, summariser.result(), None)


class _Free:
    """When the line is free; shared by both directions of a half-duplex link."""

    def __init__(self) -> None:
        self.at = 0


class _Replay:
    """One direction, replayed. `faults` names what a packet breaks, and takes it in if that is nothing."""

    def __init__(self, spec: LinkSpec, direction: Direction, medium: _Free | None) -> None:
        self._spec = spec
        self._line = make_line(spec, direction)
        self._free = medium or _Free()
        self._delay = DelayCurve(spec.delay_ms, spec.delay_steps)
        self._policed = spec.mode == "police"
        self._budget = _Budget(spec.burst_bytes if self._policed else 0)
        self._waiting: deque[tuple[int, int]] = deque()
        self._last_in = self._last_release = 0
        self._capacity = self._capacity_at = 0

    def faults(self, record: PacketRecord) -> Iterator[tuple[Rule, str]]:
        """The rules that the packet breaks, the plainest first."""
        yield from self._order(record)
        yield from self._bytes(record)
        if record.drop in REFUSED:
            yield from self._refusal(record)
        else:
            yield from self._rate(record)
            yield from self._bucket(record) if self._policed else self._queue_and_serialiser(record)
            yield from self._delivery(record)

    def _order(self, r: PacketRecord) -> Iterator[tuple[Rule, str]]:
        if r.t_in < self._last_in:
            yield "order", f"it came at {r.t_in} ns, before the one ahead of it at {self._last_in} ns"
        if not r.t_in <= r.start <= r.finish:
            yield "order", f"t_in {r.t_in}, start {r.start}, finish {r.finish} ns are not in this order"
        if r.drop not in REFUSED and r.start < self._free.at:
            yield "order", f"it starts at {r.start} ns, while the line is taken until {self._free.at} ns"
        if r.release is not None and r.release < self._last_release:
            yield "order", f"it is released at {r.release} ns, before the one ahead of it at {self._last_release} ns"
        self._last_in = r.t_in

    def _bytes(self, r: PacketRecord) -> Iterator[tuple[Rule, str]]:
        header = HEADERS.get(r.kind, self._spec.overhead_bytes)
        if r.wire != r.bytes + header:
            yield "bytes", f"{r.bytes} bytes and a header of {header} are not {r.wire} on the wire"

    def _rate(self, r: PacketRecord) -> Iterator[tuple[Rule, str]]:
        self._budget.start(self._capacity_by(r.start))
        excess = self._budget.finish(self._capacity_by(r.finish), r.wire)
        if excess > 0:
            yield "rate", f"with it some window carries {excess / WORK_PER_BYTE:.3g} bytes more than the rate allows"

    def _queue_and_serialiser(self, r: PacketRecord) -> Iterator[tuple[Rule, str]]:
        start = self._line.open_from(max(r.t_in, self._free.at))
        if r.start != start:
            yield "serialiser", f"it starts at {r.start} ns, but its turn is at {start} ns"
        finish = self._line.finish(start, r.wire)
        if r.finish != finish:
            yield "serialiser", f"it finishes at {r.finish} ns, but the rate needs until {finish} ns"
        if r.start > r.t_in:
            waiting = self._waiting_at(r.t_in) + r.wire
            if waiting > self._spec.queue_bytes:
                yield "queue", f"with it {waiting} bytes wait, but the queue holds {self._spec.queue_bytes}"
            self._waiting.append((r.start, r.wire))
        self._free.at = r.finish

    def _bucket(self, r: PacketRecord) -> Iterator[tuple[Rule, str]]:
        if not r.t_in == r.start == r.finish:
            yield "policer", "a policer holds nothing up, but the packet is not passed at the moment it came"
        if self._line.open_from(r.t_in) > r.t_in:
            yield "policer", f"it passes at {r.t_in} ns, when the link carries nothing"

    def _refusal(self, r: PacketRecord) -> Iterator[tuple[Rule, str]]:
        open_from = self._line.open_from(max(r.t_in, self._free.at))
        waiting = self._waiting_at(r.t_in) + r.wire
        if (r.drop == "queue") == self._policed:
            yield "queue", f"dropped for {r.drop}, which a link in mode {self._spec.mode} has not"
        elif r.drop == "queue" and (open_from == r.t_in or waiting <= self._spec.queue_bytes):
            yield "queue", f"refused with {waiting} bytes waiting, itself included, where {self._spec.queue_bytes} may"
        elif r.drop == "outage" and open_from == r.t_in:
            yield "policer", f"refused for an outage at {r.t_in} ns, when the link is up"
        elif r.drop == "police" and self._budget.would_exceed(self._capacity_by(r.t_in), r.wire) <= 0:
            yield "policer", "refused, though rate and burst allow it"

    def _delivery(self, r: PacketRecord) -> Iterator[tuple[Rule, str]]:
        percent = self._spec.loss_percent
        if r.drop == "loss":
            if percent == 0:
                yield "loss", "lost on a link that loses nothing"
            return
        if percent == 100:
            yield "loss", "delivered on a link that loses everything"
        crossed = r.finish + self._delay.at(r.finish)
        earliest = max(crossed, self._last_release)
        if r.release is None or r.release < crossed:
            yield "delay", f"it is released at {r.release} ns, but finish and delay give {crossed} ns"
        elif self._spec.jitter_ms == 0 and r.release != earliest:
            yield "delay", f"it is released at {r.release} ns; without jitter that is {earliest} ns"
        self._last_release = r.release or 0

    def _waiting_at(self, t: int) -> int:
        while self._waiting and self._waiting[0][0] <= t:
            self._waiting.popleft()
        return sum(wire for _, wire in self._waiting)

    def _capacity_by(self, t: int) -> int:
        """What the line could carry in [0, t], summed step by step."""
        if t >= self._capacity_at:
            self._capacity += self._line.carried(self._capacity_at, t)
        else:
            self._capacity -= self._line.carried(t, self._capacity_at)
        self._capacity_at = t
        return self._capacity


class _Budget:
    """How much more than capacity any window so far has carried, against a burst; in bit-nanoseconds."""

    def __init__(self, burst_bytes: int) -> None:
        self._burst = burst_bytes * WORK_PER_BYTE
        self._carried = 0
        self._highest = 0
        """Greatest capacity minus carried work at the start of any window; the log itself is one."""

    def start(self, capacity: int) -> None:
        """A packet starts: windows may begin here."""
        self._highest = max(self._highest, capacity - self._carried)

    def would_exceed(self, capacity: int, wire: int) -> int:
        """By how much the worst window that ends now would exceed the burst, were `wire` bytes carried in it too."""
        carried = self._carried + wire * WORK_PER_BYTE
        return carried - capacity + max(self._highest, capacity - self._carried) - self._burst

    def finish(self, capacity: int, wire: int) -> int:
        """The packet ends: by how much some window that ends here exceeds the burst."""
        self._carried += wire * WORK_PER_BYTE
        return self._carried - capacity + self._highest - self._burst
