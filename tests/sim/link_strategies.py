"""Random links and arrivals for the invariants, and an oracle for what a line can carry, summed slot by slot."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from random import Random

from hypothesis import strategies as st

from acespec.sim.link import Direction, Drop, LinkDirection, LinkSpec, Passage, make_link
from acespec.sim.loss import GilbertElliott, LossSpec
from acespec.sim.markov_rate import walk
from acespec.sim.outages import OnOff, Outage
from acespec.sim.packet_log import PacketRecord, record_of
from acespec.sim.rate import MarkovRate, RateSpec, RateState, RateTrace
from acespec.sim.spec import Mode
from acespec.sim.units import MILLISECOND, SECOND

OVERHEAD = 52
BYTE = 8 * SECOND
"""Work of one byte in bit-nanoseconds."""
CONSTANTS = (2.4, 16.0, 50.0, 333.3)

Arrivals = list[tuple[int, int]]

traces = st.lists(
    st.tuples(st.sampled_from([0.03, 0.25, 1.5]), st.sampled_from([0.0, 0.0, 4.8, 50.0, 333.3])), min_size=1, max_size=6
).filter(lambda slots: any(kbps for _, kbps in slots))


def trace_of(slots: list[tuple[float, float]]) -> RateTrace:
    t, points = 0.0, []
    for length, kbps in slots:
        points.append((round(t, 3), kbps))
        t += length
    return RateTrace(tuple(points), round(t, 3))


states = st.builds(RateState, st.sampled_from([0.0, 16.0, 50.0]), st.sampled_from([0.05, 0.4, 2.0]))
chains = st.lists(states, min_size=1, max_size=3).map(lambda more: MarkovRate((RateState(100.0, 0.3), *more)))
constants: st.SearchStrategy[RateSpec] = st.sampled_from(CONSTANTS)
rates: st.SearchStrategy[RateSpec] = st.one_of(constants, traces.map(trace_of), chains)
outages = st.lists(
    st.builds(Outage, st.floats(0, 3).map(lambda x: round(x, 3)), st.floats(0.001, 2).map(lambda x: round(x, 3))),
    max_size=3,
).map(tuple)
losses: st.SearchStrategy[LossSpec] = st.sampled_from(
    [0.0, 0.0, 20.0, GilbertElliott(0.1, 0.4), GilbertElliott(0.2, 0.2, 0.9, 0.05)]
)


@st.composite
def specs(
    draw: st.DrawFn, *, modes: tuple[Mode, ...] = ("queue", "queue", "police"), loss: bool = True, jitter: bool = True
) -> LinkSpec:
    """Links of every kind, full-duplex."""
    base = LinkSpec(
        rate_up_kbps=50,
        rate_down_kbps=50,
        delay_ms=draw(st.sampled_from([0.0, 50.0, 250.0])),
        jitter_ms=draw(st.sampled_from([0.0, 10.0, 100.0])) if jitter else 0.0,
        queue_bytes=draw(st.sampled_from([1500, 3000, 15000])),
        outages=draw(outages),
        on_off=draw(st.sampled_from([None, None, OnOff(1.0, 0.2)])),
        mode=draw(st.sampled_from(modes)),
        burst_bytes=draw(st.sampled_from([1500, 4000])),
        seed=draw(st.integers(0, 2**64 - 1)),
    )
    return base.varied(rate_up=draw(rates), rate_down=draw(rates), loss=draw(losses) if loss else None)


queues = specs(modes=("queue",))
arrivals = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, MILLISECOND, 20 * MILLISECOND, 300 * MILLISECOND]), st.integers(0, 1448)),
    min_size=1,
    max_size=40,
)


@dataclass(frozen=True)
class Booked:
    t: int
    nbytes: int
    outcome: Passage | Drop

    @property
    def used_the_link(self) -> bool:
        return not (isinstance(self.outcome, Drop) and self.outcome.refused)


def book(spec: LinkSpec, gaps: Arrivals, direction: Direction = "up") -> list[Booked]:
    link, t, booked = LinkDirection(spec, direction), 0, []
    for gap, nbytes in gaps:
        t += gap
        booked.append(Booked(t, nbytes, link.offer(t, nbytes)))
    return booked


def carried(spec: LinkSpec, gaps: Arrivals) -> list[Booked]:
    return [packet for packet in book(spec, gaps) if packet.used_the_link]


def recorded(spec: LinkSpec, up: Arrivals, down: Arrivals) -> list[PacketRecord]:
    """Both directions, booked as a backend does: in order of time, on one medium if half-duplex."""
    coming: list[tuple[int, Direction, int]] = []
    for direction, gaps in (("up", up), ("down", down)):
        t = 0
        for gap, nbytes in gaps:
            t += gap
            coming.append((t, direction, nbytes))  # type: ignore[arg-type] # one of two words
    links = dict(zip(("up", "down"), make_link(spec), strict=True))
    return [
        record_of(t, direction, 1, "data", nbytes, links[direction].offer(t, nbytes))
        for t, direction, nbytes in sorted(coming, key=lambda packet: packet[0])
    ]


class Oracle:
    """The integral of a direction's rate, outages left out, from its slots laid end to end."""

    def __init__(self, spec: LinkSpec, direction: Direction = "up", until: int = 0) -> None:
        self._slots = self._rate_slots(spec, direction, until)
        self._cuts = self._down_spans(spec, until)
        edges = sorted({0, until} | {begin for begin, _ in self._slots} | {t for span in self._cuts for t in span})
        self._edges = [t for t in edges if t <= until]
        self._sums = [0]
        for begin, end in pairwise(self._edges):
            self._sums.append(self._sums[-1] + self.rate_at(begin) * (end - begin))

    def work(self, begin: int, end: int) -> int:
        """Bit-nanoseconds that the line can carry in [begin, end]."""
        return self._by(end) - self._by(begin)

    def rate_at(self, t: int) -> int:
        if any(begin <= t < end for begin, end in self._cuts):
            return 0
        return self._slots[bisect_right(self._slots, (t, 1 << 62)) - 1][1]

    def _by(self, t: int) -> int:
        edge = bisect_right(self._edges, t) - 1
        return self._sums[edge] + self.rate_at(self._edges[edge]) * (t - self._edges[edge])

    @staticmethod
    def _rate_slots(spec: LinkSpec, direction: Direction, until: int) -> list[tuple[int, int]]:
        rate, slots, t = spec.rate(direction), [], 0
        if isinstance(rate, (int, float)):
            return [(0, round(rate * 1000))]
        steps = (
            cycle(rate.steps()) if isinstance(rate, RateTrace) else walk(rate, Random(f"{spec.seed}:{direction}:rate"))
        )
        while t <= until:
            length, bps = next(steps)
            slots.append((t, bps))
            t += length
        return slots

    @staticmethod
    def _down_spans(spec: LinkSpec, until: int) -> list[tuple[int, int]]:
        spans = [(round(o.start_s * SECOND), round((o.start_s + o.duration_s) * SECOND)) for o in spec.outages]
        if spec.on_off is not None:
            for span in spec.on_off.spans(Random(f"{spec.seed}:outages")):
                if span[0] > until:
                    break
                spans.append(span)
        return spans


def oracle_for(spec: LinkSpec, packets: list[Booked], direction: Direction = "up") -> Oracle:
    """One that reaches beyond the last packet."""
    until = max([packet.t for packet in packets] + [packet.outcome.finish for packet in packets]) + 1
    return Oracle(spec, direction, until)


def faster(spec: LinkSpec, factor: float) -> LinkSpec:
    """`factor` times the rate, upwards, at all times."""
    match spec.rate("up"):
        case RateTrace() as trace:
            return spec.varied(rate_up=replace(trace, points=tuple((t, kbps * factor) for t, kbps in trace.points)))
        case MarkovRate() as chain:
            return spec.varied(
                rate_up=MarkovRate(tuple(replace(state, kbps=state.kbps * factor) for state in chain.states))
            )
        case kbps:
            return spec.varied(rate_up=kbps * factor)
