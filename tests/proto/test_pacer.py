from __future__ import annotations

import pytest

from acespec.proto.pacer import FLOOR_BYTES, WINDOW_S, Pacer

RATE = 6250.0  # bytes/s: 50 Kbps
DELAY = 0.1  # round trip without serialisation
SIZE = 120


def run_over_a_link(pacer: Pacer, seconds: float, rate: float = RATE) -> tuple[float, float]:
    """A sender that always has something to say, over a serialiser: (bytes/s delivered, longest queue in s)."""
    now, free, mark, delivered, longest = 0.0, 0.0, 0, 0, 0.0
    pending: list[tuple[float, int]] = []
    while now < seconds:
        while pending and pending[0][0] <= now:
            at, acked = pending.pop(0)
            pacer.acknowledged(at, acked)
            delivered += SIZE
        while pacer.ready():
            mark += 1
            free = max(free, now) + SIZE / rate
            longest = max(longest, free - now)
            pacer.sent(now, mark, SIZE)
            pending.append((free + DELAY, mark))
        now += 0.001
    return delivered / seconds, longest


def test_a_link_is_filled_and_its_queue_stays_short() -> None:
    throughput, queue = run_over_a_link(Pacer(1.5), 20.0)
    assert throughput > 0.9 * RATE
    assert queue < 0.25


def test_a_faster_link_is_found() -> None:
    throughput, _ = run_over_a_link(Pacer(1.5), 10.0, rate=10 * RATE)
    assert throughput > 0.5 * 10 * RATE


def test_nothing_is_known_at_first_and_little_is_in_flight() -> None:
    pacer = Pacer(1.5)
    sent = 0
    while pacer.ready():
        sent += 1
        pacer.sent(0.0, sent, SIZE)
    assert FLOOR_BYTES < sent * SIZE <= FLOOR_BYTES + SIZE, "the floor, plus one message"
    assert pacer.rate is None
    assert pacer.base_rtt is None


def test_one_acknowledgement_covers_all_messages_up_to_its_mark() -> None:
    pacer = Pacer(1.0)
    for mark in range(1, 9):
        pacer.sent(0.0, mark, SIZE)
    assert not pacer.ready()
    pacer.acknowledged(0.2, 6)
    assert pacer.ready()
    pacer.acknowledged(0.3, 6)
    assert pacer.base_rtt == pytest.approx(0.2), "an old mark says nothing new"


def test_the_time_that_the_other_end_held_a_message_is_no_round_trip() -> None:
    pacer = Pacer(1.0)
    pacer.sent(0.0, 1, SIZE)
    pacer.acknowledged(0.5, 1, held_s=0.35)
    assert pacer.base_rtt == pytest.approx(0.15)


def test_old_samples_are_forgotten_and_a_new_stream_has_nothing_in_flight() -> None:
    pacer = Pacer(1.0)
    pacer.sent(0.0, 1, SIZE)
    pacer.acknowledged(0.1, 1)
    pacer.sent(100.0, 2, SIZE)
    pacer.acknowledged(100.0 + WINDOW_S / 20, 2)
    assert pacer.base_rtt == pytest.approx(WINDOW_S / 20)
    for mark in range(3, 20):
        pacer.sent(200.0, mark, SIZE)
    assert not pacer.ready()
    pacer.reset()
    assert pacer.ready()
