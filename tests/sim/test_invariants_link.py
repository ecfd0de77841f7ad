"""The invariants of a link, 1 to 10 and 12, held by `LinkDirection` over random links and arrivals of every kind.

Numbers are those of the project's list; 11 is in test_loss.py, 13 in test_rate_trace.py. The rate is integrated by an
oracle that shares no code with the link but the draws themselves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.sim.link import Drop, LinkDirection, LinkSpec, Passage, make_link
from acespec.sim.link_check import check_records
from acespec.sim.loss import GilbertElliott
from acespec.sim.outages import OnOff, Outage
from acespec.sim.packet_log import digest
from acespec.sim.rate import MarkovRate, RateState, RateTrace
from acespec.sim.units import MILLISECOND

from .link_strategies import (
    BYTE,
    OVERHEAD,
    Arrivals,
    arrivals,
    book,
    carried,
    faster,
    oracle_for,
    queues,
    recorded,
    specs,
)

some = settings(max_examples=40)
quiet_queues = specs(modes=("queue",), loss=False, jitter=False).map(lambda spec: replace(spec, queue_bytes=10**6))


@some
@given(specs(), arrivals)
def test_invariant_1_no_window_carries_more_than_the_rate_integrated_over_it(spec: LinkSpec, gaps: Arrivals) -> None:
    packets = carried(spec, gaps)
    oracle = oracle_for(spec, book(spec, gaps))
    burst = spec.burst_bytes * BYTE if spec.mode == "police" else 0
    for index, first in enumerate(packets):
        nbytes = 0
        for last in packets[index:]:
            nbytes += last.outcome.wire
            assert nbytes * BYTE <= oracle.work(first.outcome.start, last.outcome.finish) + burst


@some
@given(specs(modes=("queue",), jitter=False), arrivals)
def test_invariant_1_deliveries_keep_to_the_rate_but_for_one_packet(spec: LinkSpec, gaps: Arrivals) -> None:
    packets, delay = carried(spec, gaps), round(spec.delay_ms * MILLISECOND)
    oracle = oracle_for(spec, book(spec, gaps))
    delivered = [packet.outcome for packet in packets if isinstance(packet.outcome, Passage)]
    for index, first in enumerate(delivered):
        nbytes = 0
        for last in delivered[index:]:
            nbytes += last.wire
            window = oracle.work(first.release - delay, last.release - delay)
            assert nbytes * BYTE <= window + first.wire * BYTE


@some
@given(queues, arrivals, arrivals)
def test_invariant_1_half_duplex_directions_never_overlap(spec: LinkSpec, up: Arrivals, down: Arrivals) -> None:
    records = [r for r in recorded(replace(spec, half_duplex=True), up, down) if r.drop != "queue"]
    assert all(a.finish <= b.start for a, b in pairwise(records))


@some
@given(specs(), arrivals)
def test_invariant_2_packets_keep_their_order_and_releases_never_decrease(spec: LinkSpec, gaps: Arrivals) -> None:
    packets = carried(spec, gaps)
    assert all(a.outcome.finish <= b.outcome.start for a, b in pairwise(packets))
    releases = [p.outcome.release for p in packets if isinstance(p.outcome, Passage)]
    assert releases == sorted(releases)


@some
@given(specs(), arrivals, st.integers(0, 10**10))
def test_invariant_3_every_byte_offered_is_delivered_dropped_or_on_its_way(
    spec: LinkSpec, gaps: Arrivals, t: int
) -> None:
    t += sum(gap for gap, _ in gaps)
    link, now, outcomes = LinkDirection(spec, "up"), 0, []
    for gap, nbytes in gaps:
        now += gap
        outcomes.append(link.offer(now, nbytes))
    delivered = sum(o.wire for o in outcomes if isinstance(o, Passage) and o.release <= t)
    dropped = sum(o.wire for o in outcomes if isinstance(o, Drop) and (o.refused or o.finish <= t))
    waiting = link.waiting_bytes(t)
    under_way = sum(o.wire for o in outcomes if o.start <= t < (o.release if isinstance(o, Passage) else o.finish))
    offered = sum(nbytes + OVERHEAD for _, nbytes in gaps)
    assert delivered + dropped + waiting + under_way == offered


@some
@given(specs(), arrivals)
def test_invariant_4_nothing_comes_before_arrival_serialisation_and_delay(spec: LinkSpec, gaps: Arrivals) -> None:
    oracle, delay = oracle_for(spec, book(spec, gaps)), round(spec.delay_ms * MILLISECOND)
    for packet in carried(spec, gaps):
        if isinstance(packet.outcome, Passage):
            assert packet.outcome.release >= packet.outcome.finish + delay
            if spec.jitter_ms == 0:
                assert packet.outcome.release == packet.outcome.finish + delay
            if spec.mode == "queue":
                assert oracle.work(packet.t, packet.outcome.finish) >= packet.outcome.wire * BYTE


@some
@given(queues, arrivals)
def test_invariant_5_the_line_idles_only_while_empty_down_or_at_rate_zero(spec: LinkSpec, gaps: Arrivals) -> None:
    oracle, free = oracle_for(spec, book(spec, gaps)), 0
    for packet in carried(spec, gaps):
        start, finish = packet.outcome.start, packet.outcome.finish
        assert oracle.work(max(packet.t, free), start) == 0
        # Rounded up by less than a nanosecond: one earlier, and it would not have been through.
        assert oracle.work(start, finish - 1) < packet.outcome.wire * BYTE <= oracle.work(start, finish)
        free = finish


@some
@given(queues, arrivals)
def test_invariant_6_the_queue_is_bounded_and_refuses_only_when_full(spec: LinkSpec, gaps: Arrivals) -> None:
    packets = book(spec, gaps)
    oracle = oracle_for(spec, packets)
    for index, packet in enumerate(packets):
        before = [p for p in packets[:index] if p.used_the_link]
        waiting = sum(p.outcome.wire for p in before if p.outcome.start > packet.t)
        assert waiting <= spec.queue_bytes
        full = waiting + packet.outcome.wire > spec.queue_bytes
        busy = oracle.rate_at(packet.t) == 0 or any(p.outcome.finish > packet.t for p in before)
        assert packet.used_the_link == (not (full and busy))


@some
@given(specs(modes=("police",)), arrivals)
def test_invariant_6_a_policer_holds_nothing_and_refuses_only_what_exceeds(spec: LinkSpec, gaps: Arrivals) -> None:
    packets = book(spec, gaps)
    oracle = oracle_for(spec, packets)
    level, before = spec.burst_bytes * BYTE, 0
    for packet in packets:
        level = min(spec.burst_bytes * BYTE, level + oracle.work(before, packet.t))
        before = packet.t
        outcome, need = packet.outcome, packet.outcome.wire * BYTE
        assert outcome.start == outcome.finish == packet.t
        if oracle.rate_at(packet.t) == 0:
            assert isinstance(outcome, Drop)
            assert outcome.reason == "outage"
        elif need > level:
            assert isinstance(outcome, Drop)
            assert outcome.reason == "police"
        else:
            assert packet.used_the_link
            level -= need


@some
@given(queues, arrivals)
def test_invariant_6_a_sender_that_waits_for_room_is_never_refused_and_waits_no_longer_than_needed(
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
        assert not (isinstance(outcome, Drop) and outcome.refused)
        so_far.append((t, nbytes))


@some
@given(specs(), arrivals)
def test_invariant_7_nothing_moves_in_an_outage_or_a_zero_rate_slot(spec: LinkSpec, gaps: Arrivals) -> None:
    oracle = oracle_for(spec, book(spec, gaps))
    for packet in carried(spec, gaps):
        assert oracle.rate_at(packet.outcome.start) > 0
        assert oracle.rate_at(max(packet.outcome.start, packet.outcome.finish - 1)) > 0


@some
@given(specs(), arrivals)
def test_invariant_8_same_seed_and_arrivals_same_log(spec: LinkSpec, gaps: Arrivals) -> None:
    assert book(spec, gaps) == book(spec, gaps)


EVERYTHING = LinkSpec(
    50, 50, 50, jitter_ms=20, outages=(Outage(0.5, 0.25),), on_off=OnOff(0.6, 0.1), queue_bytes=6000, seed=7
).varied(
    rate_up=MarkovRate((RateState(60, 0.4), RateState(0, 0.1), RateState(20, 0.3))),
    rate_down=RateTrace(((0, 80), (0.3, 0), (0.4, 30)), 0.7),
    loss=GilbertElliott(0.1, 0.4, 0.9, 0.02),
)
KINDS = {
    "everything": (EVERYTHING, "ba425701613a9875e8237d67f6b11053"),
    "policed": (replace(EVERYTHING, mode="police"), "155973c9387a0c83e24d4043a6818f9e"),
    "half-duplex": (replace(EVERYTHING, half_duplex=True), "fc7f34d7778418ad6a4657ec7e8b7df5"),
    "gprs": (replace(LinkSpec.preset("gprs"), seed=7), "3093dd8f58a66594ee88e62ce3f0066e"),
}
BOOK_AND_DIGEST = """
import json, sys
from acespec.sim.link import make_link
from acespec.sim.packet_log import digest, record_of
from acespec.sim.spec_reader import spec_from_table
up, down = make_link(spec_from_table(json.loads(sys.argv[1])))
records = []
for i in range(200):
    t = (i + 1) * 7_000_000
    for name, link, nbytes in (("up", up, i * 37 % 1449), ("down", down, (199 - i) * 37 % 1449)):
        records.append(record_of(t, name, 1, "data", nbytes, link.offer(t, nbytes)))
print(digest(records))
"""


def booked_with(spec: LinkSpec) -> str:
    gaps = [(7 * MILLISECOND, (i * 37) % 1449) for i in range(200)]
    return digest(recorded(spec, gaps, gaps[::-1]))


@pytest.mark.parametrize("kind", KINDS)
def test_invariant_8_the_log_of_a_seed_is_the_same_on_every_machine_and_another_seed_differs(kind: str) -> None:
    spec, expected = KINDS[kind]
    assert booked_with(spec) == expected
    assert booked_with(replace(spec, seed=8)) != expected


def test_invariant_8_the_log_does_not_depend_on_the_hash_seed() -> None:
    spec, expected = KINDS["everything"]
    command = [sys.executable, "-c", BOOK_AND_DIGEST, json.dumps(spec.as_json())]
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.strip() == expected


@some
@given(specs(), arrivals, arrivals)
def test_invariant_9_directions_do_not_touch_each_other(spec: LinkSpec, gaps: Arrivals, other: Arrivals) -> None:
    records = recorded(spec, gaps, other)
    for direction, own in (("up", gaps), ("down", other)):
        alone = [packet.outcome for packet in book(spec, own, direction)]  # type: ignore[arg-type] # one of two words
        together = [(r.start, r.finish, r.drop) for r in records if r.dir == direction]
        assert together == [(o.start, o.finish, o.reason if isinstance(o, Drop) else None) for o in alone]


@some
@given(specs(), arrivals)
def test_invariant_9_edges_do_not_touch_each_other(spec: LinkSpec, gaps: Arrivals) -> None:
    mine, _ = make_link(spec)
    neighbour, _ = make_link(replace(spec, seed=spec.seed + 1))
    t, outcomes = 0, []
    for gap, nbytes in gaps:
        t += gap
        neighbour.offer(t, nbytes)
        outcomes.append(mine.offer(t, nbytes))
    assert outcomes == [packet.outcome for packet in book(spec, gaps)]


@some
@given(specs(), arrivals)
def test_invariant_10_wire_bytes_are_payload_and_headers(spec: LinkSpec, gaps: Arrivals) -> None:
    packets = book(spec, gaps)
    payload = sum(packet.nbytes for packet in packets)
    assert sum(packet.outcome.wire for packet in packets) == payload + OVERHEAD * len(packets)


@some
@given(quiet_queues, arrivals)
def test_invariant_12_half_the_rate_more_delay_or_an_outage_speeds_nothing_up(spec: LinkSpec, gaps: Arrivals) -> None:
    base = [p.outcome.release for p in book(spec, gaps) if isinstance(p.outcome, Passage)]
    for worse in (
        faster(spec, 0.5),
        replace(spec, delay_ms=spec.delay_ms + 5),
        replace(spec, outages=(*spec.outages, Outage(0.5, 1))),
    ):
        worse_releases = [p.outcome.release for p in book(worse, gaps) if isinstance(p.outcome, Passage)]
        assert len(worse_releases) == len(base)
        assert all(after >= before for before, after in zip(base, worse_releases, strict=True))


@some
@given(specs(loss=False), arrivals, st.sampled_from([5.0, 50.0, GilbertElliott(0.2, 0.3)]))
def test_invariant_12_loss_moves_no_packet_that_is_not_lost(
    spec: LinkSpec, gaps: Arrivals, loss: float | GilbertElliott
) -> None:
    """With jitter, too: what draws one thing takes nothing from the stream of another."""
    lossless, lossy = book(spec, gaps), book(spec.varied(loss=loss), gaps)
    for before, after in zip(lossless, lossy, strict=True):
        if isinstance(after.outcome, Drop) and after.outcome.reason == "loss":
            assert (after.outcome.start, after.outcome.finish) == (before.outcome.start, before.outcome.finish)
        else:
            assert after.outcome == before.outcome


@some
@given(quiet_queues, arrivals)
def test_invariant_12_more_loss_takes_more_packets_and_spares_none(spec: LinkSpec, gaps: Arrivals) -> None:
    few, many = book(spec.varied(loss=5.0), gaps), book(spec.varied(loss=60.0), gaps)
    assert all(isinstance(a.outcome, Passage) or isinstance(b.outcome, Drop) for a, b in zip(few, many, strict=True))


@some
@given(quiet_queues, arrivals, st.sampled_from([2, 10]))
def test_invariant_12_scaling_rate_and_sizes_together_changes_no_time(spec: LinkSpec, gaps: Arrivals, k: int) -> None:
    bare = replace(spec, overhead_bytes=0)
    scaled = replace(faster(bare, k), queue_bytes=bare.queue_bytes * k)
    bigger = [(gap, nbytes * k) for gap, nbytes in gaps]
    times = [(p.outcome.start, p.outcome.finish) for p in book(bare, gaps)]
    assert times == [(p.outcome.start, p.outcome.finish) for p in book(scaled, bigger)]


@some
@given(specs(), arrivals, arrivals, st.booleans())
def test_invariants_1_2_4_5_6_7_hold_in_the_eyes_of_link_check(
    spec: LinkSpec, up: Arrivals, down: Arrivals, half_duplex: bool
) -> None:
    spec = replace(spec, half_duplex=half_duplex and spec.mode == "queue")
    report = check_records(spec, recorded(spec, up, down))
    assert report.violation is None
