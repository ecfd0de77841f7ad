"""The TCP header model: segment sizes and delayed ACKs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.sim.packets import DELAYED_ACK, DelayedAck, segment_sizes, wire_size

MSS = 1448


@pytest.mark.parametrize(
    ("nbytes", "sizes"),
    [(0, []), (1, [1]), (1448, [1448]), (1449, [1448, 1]), (4000, [1448, 1448, 1104])],
)
def test_segments(nbytes: int, sizes: list[int]) -> None:
    assert segment_sizes(nbytes, MSS) == sizes


def test_a_message_costs_its_bytes_and_one_header_a_segment() -> None:
    assert wire_size(47, MSS, 52) == 99
    assert wire_size(3000, MSS, 52) == 3000 + 3 * 52


@given(st.integers(0, 10**5), st.integers(1, 2000))
def test_segments_carry_exactly_the_bytes(nbytes: int, mss: int) -> None:
    sizes = segment_sizes(nbytes, mss)
    assert sum(sizes) == nbytes
    assert all(size == mss for size in sizes[:-1])
    assert all(0 < size <= mss for size in sizes)


def test_a_lone_small_segment_is_acknowledged_after_40_ms() -> None:
    ack = DelayedAck(MSS)
    assert ack.due is None
    ack.received(1000, 47)
    assert ack.due == 1000 + DELAYED_ACK


def test_the_delay_counts_from_the_oldest_segment() -> None:
    ack = DelayedAck(MSS)
    ack.received(1000, 47)
    ack.received(2000, 47)
    assert ack.due == 1000 + DELAYED_ACK


def test_every_second_full_segment_is_acknowledged_at_once() -> None:
    ack = DelayedAck(MSS)
    ack.received(1000, MSS)
    assert ack.due == 1000 + DELAYED_ACK
    ack.received(2000, MSS)
    assert ack.due == 2000


def test_anything_sent_acknowledges() -> None:
    ack = DelayedAck(MSS)
    ack.received(1000, 47)
    ack.acknowledged()
    assert ack.due is None
    ack.received(9000, MSS)
    assert ack.due == 9000 + DELAYED_ACK
