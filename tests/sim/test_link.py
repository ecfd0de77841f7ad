"""Invariants of `LinkDirection` over random links and arrivals: rate, order, work, queue, outages, seeds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from acespec.proto.errors import UsageError
from acespec.sim.link import Drop, LinkDirection, LinkSpec, Passage, make_link
from acespec.sim.outages import Outage
from acespec.sim.packet_log import PacketRecord, digest, record_of
from acespec.sim.units import MILLISECOND, SECOND

OVERHEAD = 52


@dataclass(frozen=True)
class Booked:
    t: int
    nbytes: int
    outcome: Passage | Drop

    @property
    def used_the_link(self) -> bool:
        return not (isinstance(self.outcome, Drop) and self.outcome.reason == "queue")


Arrivals = list[tuple[int, int]]

outages = st.lists(
    st.builds(Outage, st.floats(0, 3).map(lambda x: round(x, 3)), st.floats(0.001, 2).map(lambda x: round(x, 3))),
    max_size=3,
).map(tuple)
specs = st.builds(
    LinkSpec,
    rate_up_kbps=st.sampled_from([2.4, 16.0, 50.0, 333.3]),
    rate_down_kbps=st.just(50.0),
    delay_ms=st.sampled_from([0.0, 50.0, 250.0]),
    jitter_ms=st.sampled_from([0.0, 10.0, 100.0]),
    loss_percent=st.sampled_from([0.0, 0.0, 20.0]),
    queue_bytes=st.sampled_from([1500, 3000, 15000]),
    outages=outages,
    seed=st.integers(0, 2**64 - 1),
)
arrivals = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, MILLISECOND, 20 * MILLISECOND, 300 * MILLISECOND]), st.integers(0, 1448)),
    min_size=1,
    max_size=60,
)


def book(spec: LinkSpec, gaps: Arrivals) -> list[Booked]:
    link, t, booked = LinkDirection(spec, "up"), 0, []
    for gap, nbytes in gaps:
        t += gap
        booked.append(Booked(t, nbytes, link.offer(t, nbytes)))
    return booked


def carried(spec: LinkSpec, gaps: Arrivals) -> list[Booked]:
    return [packet for packet in book(spec, gaps) if packet.used_the_link]


def time_down(spec: LinkSpec, begin: int, end: int) -> int:
    """How long the link was down in [begin, end], found by walking the sorted edges."""
    edges = sorted(
        {begin, end}
        | {min(max(round(x * SECOND), begin), end) for o in spec.outages for x in (o.start_s, o.start_s + o.duration_s)}
    )
    return sum(b - a for a, b in pairwise(edges) if is_down(spec, a))


def is_down(spec: LinkSpec, t: int) -> bool:
    return any(round(o.start_s * SECOND) <= t < round((o.start_s + o.duration_s) * SECOND) for o in spec.outages)


def rate(spec: LinkSpec) -> int:
    return round(spec.rate_up_kbps * 1000)


@given(specs, arrivals)
def test_no_window_carries_more_than_the_rate(spec: LinkSpec, gaps: Arrivals) -> None:
    packets = carried(spec, gaps)
    for first in range(len(packets)):
        nbytes = 0
        for last in packets[first:]:
            nbytes += last.outcome.wire
            window = last.outcome.finish - packets[first].outcome.start
            assert 8 * nbytes * SECOND <= rate(spec) * window


@given(specs, arrivals)
def test_packets_keep_their_order_and_releases_never_decrease(spec: LinkSpec, gaps: Arrivals) -> None:
    packets = carried(spec, gaps)
    assert all(a.outcome.finish <= b.outcome.start for a, b in pairwise(packets))
    releases = [p.outcome.release for p in packets if isinstance(p.outcome, Passage)]
    assert releases == sorted(releases)


@given(specs, arrivals)
def test_nothing_comes_early(spec: LinkSpec, gaps: Arrivals) -> None:
    for packet in carried(spec, gaps):
        if isinstance(packet.outcome, Passage):
            serialisation = 8 * (packet.nbytes + OVERHEAD) * SECOND / rate(spec)
            assert packet.outcome.release >= packet.t + serialisation + spec.delay_ms * MILLISECOND


@given(specs, arrivals)
def test_without_jitter_a_packet_is_released_one_delay_after_it_finished(spec: LinkSpec, gaps: Arrivals) -> None:
    for packet in carried(replace(spec, jitter_ms=0), gaps):
        if isinstance(packet.outcome, Passage):
            assert packet.outcome.release == packet.outcome.finish + round(spec.delay_ms * MILLISECOND)


@given(specs, arrivals)
def test_the_link_idles_only_when_it_is_empty_or_down(spec: LinkSpec, gaps: Arrivals) -> None:
    free = 0
    for packet in carried(spec, gaps):
        could_start = max(packet.t, free)
        waited = packet.outcome.start - could_start
        assert waited >= 0
        assert waited == time_down(spec, could_start, packet.outcome.start)
        free = packet.outcome.finish


@given(specs, arrivals)
def test_an_outage_serialises_nothing_and_costs_exactly_its_length(spec: LinkSpec, gaps: Arrivals) -> None:
    for packet in carried(spec, gaps):
        start, finish = packet.outcome.start, packet.outcome.finish
        assert not is_down(spec, start)
        assert not is_down(spec, finish - 1)
        work = finish - start - time_down(spec, start, finish)
        assert 0 <= work - 8 * packet.outcome.wire * SECOND / rate(spec) < 1.001


@given(specs, arrivals)
def test_the_queue_is_bounded_and_refuses_only_when_full(spec: LinkSpec, gaps: Arrivals) -> None:
    packets = book(spec, gaps)
    for index, packet in enumerate(packets):
        before = [p for p in packets[:index] if p.used_the_link]
        waiting = sum(p.outcome.wire for p in before if p.outcome.start > packet.t)
        assert waiting <= spec.queue_bytes
        full = waiting + packet.outcome.wire > spec.queue_bytes
        busy = is_down(spec, packet.t) or any(p.outcome.finish > packet.t for p in before)
        assert packet.used_the_link == (not (full and busy))


@given(specs, arrivals)
def test_a_sender_that_waits_for_room_is_never_refused_and_waits_no_longer_than_needed(
    spec: LinkSpec, gaps: Arrivals
) -> None:
    link, t = LinkDirection(spec, "up"), 0
    so_far: list[tuple[int, int]] = []
    for gap, nbytes in gaps:
        t += gap
        room = link.room_at(t, nbytes)
        if room > t:
            impatient = LinkDirection(spec, "up")
            for earlier in so_far:
                impatient.offer(*earlier)
            refused = impatient.offer(room - 1, nbytes)
            assert isinstance(refused, Drop)
            assert refused.reason == "queue"
        t = room
        outcome = link.offer(t, nbytes)
        assert not (isinstance(outcome, Drop) and outcome.reason == "queue")
        so_far.append((t, nbytes))


@given(specs, arrivals)
def test_wire_bytes_are_payload_and_headers(spec: LinkSpec, gaps: Arrivals) -> None:
    packets = book(spec, gaps)
    payload = sum(packet.nbytes for packet in packets)
    assert sum(packet.outcome.wire for packet in packets) == payload + OVERHEAD * len(packets)


@given(specs, arrivals)
def test_same_seed_same_log(spec: LinkSpec, gaps: Arrivals) -> None:
    assert book(spec, gaps) == book(spec, gaps)


@given(specs, arrivals, arrivals)
def test_directions_do_not_touch_each_other(spec: LinkSpec, gaps: Arrivals, other: Arrivals) -> None:
    up, down = make_link(spec)
    t, down_t, outcomes = 0, 0, []
    for index, (gap, nbytes) in enumerate(gaps):
        down_gap, down_nbytes = other[index % len(other)]
        down_t += down_gap
        down.offer(down_t, down_nbytes)
        t += gap
        outcomes.append(up.offer(t, nbytes))
    assert outcomes == [packet.outcome for packet in book(spec, gaps)]


big_queue = specs.map(lambda spec: replace(spec, jitter_ms=0, loss_percent=0, queue_bytes=10**6))


@given(big_queue, arrivals)
def test_a_slower_or_longer_link_speeds_nothing_up(spec: LinkSpec, gaps: Arrivals) -> None:
    base = [p.outcome.release for p in book(spec, gaps) if isinstance(p.outcome, Passage)]
    for worse in (
        replace(spec, rate_up_kbps=spec.rate_up_kbps / 2),
        replace(spec, delay_ms=spec.delay_ms + 5),
        replace(spec, outages=(*spec.outages, Outage(0.5, 1))),
    ):
        worse_releases = [p.outcome.release for p in book(worse, gaps) if isinstance(p.outcome, Passage)]
        assert len(worse_releases) == len(base)
        assert all(after >= before for before, after in zip(base, worse_releases, strict=True))


@given(big_queue, arrivals, st.sampled_from([2, 10]))
def test_scaling_rate_and_sizes_together_changes_no_time(spec: LinkSpec, gaps: Arrivals, k: int) -> None:
    bare = replace(spec, overhead_bytes=0)
    scaled = replace(bare, rate_up_kbps=bare.rate_up_kbps * k, queue_bytes=bare.queue_bytes * k)
    bigger = [(gap, nbytes * k) for gap, nbytes in gaps]
    times = [(p.outcome.start, p.outcome.finish) for p in book(bare, gaps)]
    assert times == [(p.outcome.start, p.outcome.finish) for p in book(scaled, bigger)]


def recorded(spec: LinkSpec) -> list[PacketRecord]:
    link = LinkDirection(spec, "up")
    return [
        record_of(t, "up", 1, "data", nbytes, link.offer(t, nbytes))
        for t, nbytes in ((i * 7 * MILLISECOND, (i * 37) % 1449) for i in range(200))
    ]


def test_the_log_of_a_seed_is_the_same_on_every_machine() -> None:
    spec = replace(LinkSpec.preset("gprs"), seed=7, outages=(Outage(0.5, 0.25),))
    assert digest(recorded(spec)) == "e7d243d96441ca0cab138eb8ed5e9ce5"
    assert digest(recorded(replace(spec, seed=8))) != digest(recorded(spec))


def test_turning_loss_on_leaves_the_jitter_alone() -> None:
    still = LinkSpec(50, 50, 50, jitter_ms=20)
    one_packet = [(0, 100)]
    assert carried(still, one_packet) == carried(replace(still, loss_percent=1e-9), one_packet)


def test_jitter_has_the_stated_spread() -> None:
    spec = LinkSpec(1e6, 1e6, 50, jitter_ms=10)
    link = LinkDirection(spec, "up")
    extra = []
    for i in range(4000):
        outcome = link.offer(i * SECOND, 100)
        assert isinstance(outcome, Passage)
        extra.append((outcome.release - outcome.finish) / MILLISECOND - 50)
    mean = sum(extra) / len(extra)
    spread = (sum((x - mean) ** 2 for x in extra) / len(extra)) ** 0.5
    assert min(extra) >= 0
    assert spread == pytest.approx(10, rel=0.1)
    assert mean == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("percent", [0.0, 2.0, 30.0, 100.0])
def test_loss_is_within_binomial_bounds(percent: float) -> None:
    link = LinkDirection(LinkSpec(1e6, 1e6, 1, loss_percent=percent, seed=3), "up")
    lost = sum(isinstance(link.offer(i * SECOND, 100), Drop) for i in range(3000))
    low, high = binom.interval(0.999, 3000, percent / 100)
    assert low <= lost <= high
    if percent in (0, 100):
        assert lost == 30 * percent


def test_half_duplex_directions_take_turns() -> None:
    up, down = make_link(LinkSpec(50, 50, 10, half_duplex=True))
    first, second = up.offer(0, 1000), down.offer(0, 1000)
    assert second.start == first.finish
    full = make_link(LinkSpec(50, 50, 10))
    full[0].offer(0, 1000)
    assert full[1].offer(0, 1000).start == 0


def test_propagation_never_holds_the_link() -> None:
    link = LinkDirection(LinkSpec(50, 50, 10_000), "up")
    first, second = link.offer(0, 573), link.offer(0, 573)
    assert isinstance(second, Passage)
    assert (first.finish, second.start, second.finish) == (SECOND // 10, SECOND // 10, SECOND // 5)
    assert second.release == SECOND // 5 + 10 * SECOND


def test_a_small_packet_pays_its_own_serialisation() -> None:
    outcome = LinkDirection(LinkSpec(50, 50, 50), "up").offer(0, 64)
    assert outcome == Passage(0, 18_560_000, 68_560_000, 116)


def test_time_going_backwards_is_refused() -> None:
    link = LinkDirection(LinkSpec(50, 50, 50), "up")
    link.offer(5, 1)
    with pytest.raises(UsageError, match="order of time"):
        link.offer(4, 1)
