"""The real-time proxy as a link: rate, latency, sharing, back-pressure, outages. Real sockets, real time."""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from bisect import bisect_right
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from acespec.sim.log_check import summarise
from acespec.sim.outages import Outage
from acespec.sim.packet_log import read_records
from acespec.sim.shaper import Shaper
from acespec.sim.units import MILLISECOND, SECOND, serialisation_ns

from .conftest import Serve
from .peers import FAST, LOCAL, WAN50, check_booking, closed, connect, echo, reset, round_trips


async def test_small_messages_pay_delay_and_their_own_serialisation(serve: Serve) -> None:
    theory = 2 * (50 + (64 + 52) * 8 / 50)
    async with Shaper(WAN50, listen=LOCAL, to=await serve(echo)) as shaper:
        times = await round_trips(shaper.address, 15, 64)
        await asyncio.sleep(0.2)
        summary = shaper.summary()
    assert min(times) >= theory - 0.1
    assert statistics.median(times) < theory + 40
    # 16 rounds: each side's ACK rides on its next message, so packets are messages plus the ends of the connection.
    assert summary.up_payload == summary.down_payload == 15 * 64 + 1
    assert 18 <= summary.up_packets <= 22
    assert summary.up_wire <= 15 * 64 + 1 + 52 * summary.up_packets + 8


async def test_the_handshake_takes_its_round_trip(serve: Serve) -> None:
    async with Shaper(replace(FAST, delay_ms=80), listen=LOCAL, to=await serve(echo)) as shaper:
        begin = time.monotonic()
        reader, writer = await connect(shaper.address)
        writer.write(b"x")
        await reader.readexactly(1)
        took = time.monotonic() - begin
        await closed(writer)
    assert 0.32 <= took < 0.6


async def test_bulk_reaches_the_rate_and_never_exceeds_it(serve: Serve, tmp_path: Path) -> None:
    """Upload on two connections at once for five seconds; arrivals are timed at the far end, beyond the log's word."""
    arrivals: list[tuple[float, int]] = []

    async def sink(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            arrivals.append((time.monotonic(), len(data)))

    log = tmp_path / "log"
    async with Shaper(WAN50, listen=LOCAL, to=await serve(sink), log=log) as shaper:
        writers = [(await connect(shaper.address))[1] for _ in range(2)]
        for writer in writers:
            writer.write(bytes(60_000))
        await asyncio.sleep(6)
        for writer in writers:
            writer.transport.abort()
        late = shaper.lateness().max_ms / 1000
    times = [at for at, _ in arrivals]
    sums = [0]
    for _, nbytes in arrivals:
        sums.append(sums[-1] + nbytes)
    goodput = (sums[-1] - arrivals[0][1]) * 8 / (times[-1] - times[0]) / 1000
    theory = 50 * 1448 / 1500
    assert goodput == pytest.approx(theory, rel=0.02 + late / 4)
    for index, begin in enumerate(times):
        in_window = sums[bisect_right(times, begin + 1)] - sums[index]
        assert in_window * 8 <= 50_000 * (1 + late) + 8 * 1500
    summary = summarise(log)
    assert summary.rate_ok(WAN50)
    assert summary.up_peak_kbps_1s == pytest.approx(50, abs=0.01)
    check_booking(list(read_records(log)), WAN50)


async def test_connections_share_the_link_fairly(serve: Serve) -> None:
    got = [0, 0]

    async def count(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        me = (await reader.readexactly(1))[0]
        while data := await reader.read(65536):
            got[me] += len(data)

    spec = replace(FAST, rate_up_kbps=400)
    async with Shaper(spec, listen=LOCAL, to=await serve(count)) as shaper:
        writers = [(await connect(shaper.address))[1] for _ in range(2)]
        for index, writer in enumerate(writers):
            writer.write(bytes([index]) + bytes(300_000))
        await asyncio.sleep(0.5)  # The first one has filled the queue before the second began.
        at_first = list(got)
        await asyncio.sleep(2)
        shares = [now - then for now, then in zip(got, at_first, strict=True)]
        for writer in writers:
            writer.transport.abort()
    assert sum(got) * 8 < 400_000 * 2.6
    assert min(shares) > 0.7 * max(shares)


async def test_a_flooding_sender_is_blocked_and_a_small_message_waits_no_longer_than_the_queue(serve: Serve) -> None:
    """What the proxy holds is the queue plus a few kilobytes of socket buffer, whatever the sender pushes."""
    arrived = 0

    async def sink(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        if (await reader.readexactly(1)) == b"p":
            return await echo(reader, writer)
        while data := await reader.read(65536):
            arrived += len(data)
        return None

    async with Shaper(WAN50, listen=LOCAL, to=await serve(sink)) as shaper:
        flood = socket.socket()
        flood.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
        await asyncio.to_thread(flood.connect, shaper.address)
        flood.setblocking(False)
        pushed = 0
        deadline = time.monotonic() + 1.5
        flood.send(b"f")
        while time.monotonic() < deadline:
            try:
                pushed += flood.send(bytes(1000))
            except BlockingIOError:
                await asyncio.sleep(0.01)
        held = pushed - arrived
        reader, writer = await connect(shaper.address)
        writer.write(b"p")
        begin = time.monotonic()
        writer.write(b"ping")
        await reader.readexactly(4)
        loaded = time.monotonic() - begin
        reset(flood)
        await closed(writer)
    # Own send buffer 9 KB, receive buffer 8 KB, queue and packet in service 4.5 KB, in flight 0.6 KB.
    assert held < 30_000
    # SYN, ACK and ping each find a full queue (up to 0.72 s with the packet in service), two of them in a row.
    assert 0.5 < loaded < 3.5


async def test_an_outage_holds_bytes_back_and_loses_none(serve: Serve) -> None:
    spec = replace(FAST, outages=(Outage(0.3, 0.7),))
    async with Shaper(spec, listen=LOCAL, to=await serve(echo)) as shaper:
        begin = time.monotonic()
        reader, writer = await connect(shaper.address)
        arrived = []
        for _ in range(30):
            writer.write(b"tick")
            await reader.readexactly(4)
            arrived.append(time.monotonic() - begin)
            await asyncio.sleep(0.02)
        await closed(writer)
    silence = max(b - a for a, b in pairwise(arrived))
    assert 0.6 < silence < 1.2
    assert not [t for t in arrived if 0.45 < t < 0.98]


async def test_half_duplex_never_carries_both_ways_at_once(serve: Serve, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Shaper(replace(FAST, half_duplex=True), listen=LOCAL, to=await serve(echo), log=log) as shaper:
        reader, writer = await connect(shaper.address)
        writer.write(bytes(50_000))
        await asyncio.wait_for(reader.readexactly(50_000), 10)
        await closed(writer)
    spans = sorted((r.start, r.finish) for r in read_records(log))
    assert all(a[1] <= b[0] for a, b in pairwise(spans))


async def test_deliveries_are_never_early(serve: Serve) -> None:
    """A far end that timestamps on the same clock: one-way times, with jitter."""
    seen: list[int] = []

    async def stamp(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            seen.append(time.monotonic_ns())

    spec = replace(FAST, jitter_ms=5)
    async with Shaper(spec, listen=LOCAL, to=await serve(stamp)) as shaper:
        _, writer = await connect(shaper.address)
        await asyncio.sleep(0.1)
        sent = []
        for _ in range(30):
            sent.append(time.monotonic_ns())
            writer.write(b"x" * 100)
            await asyncio.sleep(0.04)
        await asyncio.sleep(0.2)
        await closed(writer)
    floor = 5 * MILLISECOND + serialisation_ns(152, 4_000_000)
    one_way = [b - a for a, b in zip(sent, seen, strict=True)]
    assert min(one_way) >= floor
    assert max(one_way) > floor + 5 * MILLISECOND
    assert statistics.median(one_way) < floor + SECOND // 25
