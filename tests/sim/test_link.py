"""`LinkDirection` by example: figures that can be worked out by hand. The invariants are in test_invariants_link.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acespec.proto.errors import UsageError
from acespec.sim.link import Drop, LinkDirection, LinkSpec, Passage, make_link
from acespec.sim.outages import OnOff, Outage
from acespec.sim.units import MILLISECOND, SECOND


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


def test_directions_and_seeds_draw_jitter_of_their_own() -> None:
    spec = LinkSpec(50, 50, 50, jitter_ms=10)
    links = [*make_link(spec), *make_link(replace(spec, seed=1))]
    assert len({link.offer(0, 100) for link in links}) == 4


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


POLICED = LinkSpec(80, 80, 30, mode="police", burst_bytes=3000, overhead_bytes=0)


def test_a_policer_passes_a_burst_at_once_and_then_the_rate() -> None:
    """80 Kbps are 10 bytes a millisecond."""
    link = LinkDirection(POLICED, "up")
    assert [link.offer(0, 1000) for _ in range(3)] == [Passage(0, 0, 30 * MILLISECOND, 1000)] * 3
    assert link.offer(0, 1) == Drop("police", 0, 0, 1)
    # Ten tries, to the last nanosecond: none of them adds to the bucket.
    for t in range(100 * MILLISECOND - 10, 100 * MILLISECOND):
        assert link.offer(t, 1000) == Drop("police", t, t, 1000)
    assert isinstance(link.offer(100 * MILLISECOND, 1000), Passage)
    # The bucket holds no more than the burst, however long nothing came.
    outcomes = [link.offer(100 * SECOND, 1000) for _ in range(4)]
    assert [isinstance(outcome, Passage) for outcome in outcomes] == [True, True, True, False]


def test_a_policed_link_that_is_down_drops_and_its_bucket_does_not_fill() -> None:
    link = LinkDirection(replace(POLICED, outages=(Outage(1, 1),)), "up")
    for _ in range(3):
        link.offer(SECOND - 1, 1000)
    down = link.offer(3 * SECOND // 2, 10)
    assert isinstance(down, Drop)
    assert (down.reason, down.refused) == ("outage", True)
    again = link.offer(2 * SECOND, 10)
    assert isinstance(again, Drop)
    assert again.reason == "police"


def test_nobody_waits_for_a_policer() -> None:
    link = LinkDirection(POLICED, "up")
    for _ in range(5):
        link.offer(0, 1000)
    assert link.room_at(0, 1000) == 0
    assert link.waiting_bytes(0) == 0


def test_random_outages_hit_both_directions_at_once_and_last_as_stated() -> None:
    spec = LinkSpec(50, 50, 50, on_off=OnOff(20, 2), seed=5)
    up, down = make_link(spec)
    t = 0
    spans: list[tuple[int, int]] = []
    while len(spans) < 400:
        if (back := up.up_from(t)) > t:
            assert down.up_from(t) == back
            spans.append((t, back))
            t = back
        t += 50 * MILLISECOND
    lengths = [(back - t) / SECOND for t, back in spans]
    assert sum(lengths) / len(lengths) == pytest.approx(2, rel=0.2)
    assert spans[-1][1] / SECOND / len(spans) == pytest.approx(22, rel=0.2)
    other, _ = make_link(replace(spec, seed=6))
    assert [other.up_from(t) for t, _ in spans] != [back for _, back in spans]


def test_random_outages_come_besides_those_given() -> None:
    link = LinkDirection(LinkSpec(50, 50, 0, on_off=OnOff(20, 2), outages=(Outage(0, 5),)), "up")
    assert link.offer(0, 100).start == 5 * SECOND
