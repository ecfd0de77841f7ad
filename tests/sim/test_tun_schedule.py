"""The forwarder without privileges: its schedule over random links, and its thread between plain socket pairs."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.sim.clock import Clock
from acespec.sim.forwarder import Forwarder, LatenessMeter, Schedule
from acespec.sim.link import LinkSpec
from acespec.sim.link_check import check_records
from acespec.sim.packet_log import PacketRecord
from acespec.sim.units import MILLISECOND, SECOND, serialisation_ns

from .link_strategies import Arrivals, arrivals, specs


def play(schedule: Schedule, gaps: Arrivals) -> tuple[list[PacketRecord], list[tuple[int, int, str, bytes]]]:
    """Arrivals in turn from both sides; before each, what is due is taken. The packet says its number."""
    t, booked, taken = 0, [], []
    for number, (gap, nbytes) in enumerate(gaps):
        t += gap
        while due := schedule.take_due(t):
            taken.append((t, *due))
        booked.append(schedule.arrived(t, "up" if number % 3 else "down", number.to_bytes(4, "big") + bytes(nbytes)))
    while (release := schedule.next_release) is not None:
        due = schedule.take_due(release)
        assert due is not None
        taken.append((release, *due))
    return booked, taken


@settings(max_examples=60)
@given(specs(), arrivals, st.booleans())
def test_every_packet_is_handed_over_whole_once_in_order_and_never_early(
    spec: LinkSpec, gaps: Arrivals, half_duplex: bool
) -> None:
    booked, taken = play(Schedule(spec), gaps)
    assert check_records(spec, booked).ok
    passed = {n: r for n, r in enumerate(booked) if r.drop is None}
    assert {int.from_bytes(packet[:4], "big"): release for _, release, _, packet in taken} == {
        n: r.release for n, r in passed.items()
    }
    assert all(at >= release for at, release, _, _ in taken)
    assert all(len(packet) == passed[int.from_bytes(packet[:4], "big")].wire for _, _, _, packet in taken)
    for direction in ("up", "down"):
        numbers = [packet[:4] for _, _, way, packet in taken if way == direction]
        assert numbers == sorted(numbers)


def test_the_heap_is_one_for_both_ways() -> None:
    schedule = Schedule(LinkSpec(8, 80, 10))
    schedule.arrived(0, "up", bytes(1000))
    schedule.arrived(0, "down", bytes(1000))
    assert schedule.next_release == 110 * MILLISECOND
    assert schedule.take_due(110 * MILLISECOND - 1) is None
    assert schedule.take_due(110 * MILLISECOND) == (110 * MILLISECOND, "down", bytes(1000))
    assert schedule.next_release == 1010 * MILLISECOND


@given(st.lists(st.integers(0, 20 * MILLISECOND), min_size=1), st.floats(0, 1))
def test_quantiles_of_lateness_are_right_to_a_hundredth(late: list[int], share: float) -> None:
    meter = LatenessMeter()
    for each in late:
        meter.add(each)
    true = sorted(late)[max(0, -(-int(share * len(late) * 1e9) // 10**9) - 1)] / MILLISECOND
    assert true <= meter.quantile_ms(share) + 1e-9
    assert meter.quantile_ms(share) <= true + 0.0101
    assert meter.max_ms == max(late) / MILLISECOND
    assert meter.mean_ms == pytest.approx(statistics.mean(late) / MILLISECOND)


class Plug:
    """One end of the link as a datagram socket; `outside` is what a namespace would be."""

    def __init__(self) -> None:
        self._inside, self.outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._inside.setblocking(False)
        self.outside.settimeout(5)
        self.fd = self._inside.fileno()

    def read(self) -> bytes | None:
        try:
            return self._inside.recv(65536)
        except BlockingIOError:
            return None

    def write(self, packet: bytes) -> None:
        self._inside.send(packet)

    def close(self) -> None:
        self._inside.close()
        self.outside.close()


@contextmanager
def forwarding(spec: LinkSpec) -> Iterator[tuple[Forwarder, Plug, Plug, list[PacketRecord]]]:
    edge, cloud, records = Plug(), Plug(), list[PacketRecord]()
    forwarder = Forwarder(spec, edge, cloud, Clock(), records.append)
    forwarder.start()
    try:
        yield forwarder, edge, cloud, records
    finally:
        forwarder.stop()
        edge.close()
        cloud.close()


def test_packets_cross_both_ways_at_their_time() -> None:
    spec = LinkSpec(200, 100, 20, name="plug")
    with forwarding(spec) as (forwarder, edge, cloud, records):
        for source, sink, kbps in ((edge, cloud, 200), (cloud, edge, 100)):
            begin = time.monotonic_ns()
            source.outside.send(b"a" * 500)
            source.outside.send(b"b" * 250)
            for content, nbytes in ((b"a" * 500, 500), (b"b" * 250, 750)):
                assert sink.outside.recv(65536) == content
                took = time.monotonic_ns() - begin
                due = 20 * MILLISECOND + serialisation_ns(nbytes, kbps * 1000)
                assert due <= took < due + SECOND
        assert forwarder.lateness().count == 4
    summary = forwarder.summary()
    assert (summary.up_wire, summary.down_wire) == (750, 750)
    assert check_records(spec, records).ok


def test_a_flood_one_way_holds_up_nothing_the_other_way() -> None:
    """Ten thousand packets, most of them dropped, while a few come back."""
    spec = LinkSpec(50, 50, 5, queue_bytes=3000)
    with forwarding(spec) as (forwarder, edge, cloud, records):
        edge.outside.setblocking(False)
        late = []
        for _ in range(5):
            begin = time.monotonic()
            cloud.outside.send(bytes(50))
            for _ in range(2000):
                try:
                    edge.outside.send(bytes(1000))
                except BlockingIOError:
                    continue
            edge.outside.setblocking(True)
            assert len(edge.outside.recv(65536)) == 50
            late.append(time.monotonic() - begin - 0.013)
            edge.outside.setblocking(False)
    assert min(late) >= 0
    assert statistics.median(late) < 0.25
    summary = forwarder.summary()
    assert summary.refused > 10
    assert summary.up_packets <= 2 + 3 + (max(r.t_in for r in records) - records[0].t_in) * 50_000 / 8 / 1000 / SECOND
    assert all(a.t_in <= b.t_in for a, b in pairwise(records))


def test_an_end_that_takes_nothing_is_counted_and_the_link_goes_on() -> None:
    with forwarding(LinkSpec(4000, 4000, 1)) as (forwarder, edge, cloud, _):
        cloud.outside.close()
        edge.outside.send(bytes(100))
        deadline = time.monotonic() + 5
        while not forwarder.untaken and time.monotonic() < deadline:
            time.sleep(0.01)
        assert forwarder.untaken == 1
        assert forwarder.failure is None
