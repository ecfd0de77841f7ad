"""The invariants of a link held by the real-time proxy, on links of every kind. Real sockets, real time.

1 to 7, 9 and 10 by replaying the proxy's log; 3 by comparing streams. The plain link has tests of its own in
test_shaper_timing.py and test_shaper_streams.py, and the comparison of 10 with a capture is in test_capture.py.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from dataclasses import replace
from pathlib import Path

import pytest

from acespec.sim.link import LinkSpec
from acespec.sim.link_check import check_log
from acespec.sim.log_check import summarise
from acespec.sim.loss import GilbertElliott
from acespec.sim.outages import OnOff, Outage
from acespec.sim.packet_log import read_records
from acespec.sim.rate import MarkovRate, RateState, RateTrace
from acespec.sim.shaper import Shaper
from acespec.sim.stall import first_rto
from acespec.sim.units import MILLISECOND, SECOND, ns_from_ms

from .conftest import Serve
from .peers import FAST, LOCAL, closed, connect, echo, round_trips

TRACE = RateTrace(((0, 2000), (0.05, 0), (0.08, 500)), 0.12)
CHAIN = MarkovRate((RateState(2000, 0.1), RateState(0, 0.03), RateState(500, 0.05)))
KINDS = {
    "trace": FAST.varied(rate_up=TRACE, rate_down=CHAIN),
    "burst-loss": replace(FAST, seed=3).varied(loss=GilbertElliott(0.05, 0.8, 0.9)),
    "policed": replace(FAST, rate_up_kbps=1500, rate_down_kbps=1500, mode="police", burst_bytes=6000),
    "policed-down": replace(FAST, mode="police", burst_bytes=6000, outages=(Outage(0.1, 0.2),)),
    "half-duplex": replace(FAST, half_duplex=True),
    "on-off": replace(FAST, on_off=OnOff(0.1, 0.05), tcp_backoff=True),
}
SIZES = (20_000, 9_001)


async def carry(shaper: Shaper, nbytes: int) -> None:
    """Sends random bytes in random pieces, ends its half, and wants the same back."""
    data = random.Random(nbytes).randbytes(nbytes)
    sizes = random.Random(1)
    reader, writer = await connect(shaper.address)

    async def push() -> None:
        left = data
        while left:
            n = sizes.choice([1, 17, 512, 1448, 5000])
            writer.write(left[:n])
            left = left[n:]
            await writer.drain()
        writer.write_eof()

    _, back = await asyncio.gather(push(), reader.read(-1))
    assert back == data
    await closed(writer)


@pytest.mark.parametrize("kind", KINDS)
async def test_invariants_1_to_7_and_9_and_10_on_links_of_every_kind(kind: str, serve: Serve, tmp_path: Path) -> None:
    """Two connections share the link: streams come out whole, and their common log keeps every rule."""
    spec, log = KINDS[kind], tmp_path / "log"
    async with Shaper(spec, listen=LOCAL, to=await serve(echo), log=log) as shaper:
        await asyncio.wait_for(asyncio.gather(*(carry(shaper, nbytes) for nbytes in SIZES)), 30)
        await asyncio.sleep(0.1)
        summary = shaper.summary()
    report = check_log(log)
    assert report.violation is None
    assert summary == report.summary == summarise(log)
    assert summary.rate_ok(spec)
    assert (summary.up_payload, summary.down_payload) == (sum(SIZES), sum(SIZES))
    records = list(read_records(log))
    assert {record.conn for record in records} == {1, 2}
    assert (summary.refused > 0) == (spec.mode == "police")
    assert (summary.lost > 0) == (spec.loss_percent > 0)
    # A stream's segments are delivered once each, whatever was dropped on the way.
    for conn, nbytes in enumerate(SIZES, start=1):
        for direction in ("up", "down"):
            mine = [r for r in records if r.conn == conn and r.dir == direction and r.drop is None]
            assert sum(r.bytes for r in mine) in {nbytes, SIZES[conn % 2]}


async def test_invariant_9_edges_do_not_share_a_limit(serve: Serve) -> None:
    """A flood on one link leaves the round trips of the other alone."""
    to = await serve(echo)
    calm = LinkSpec(400, 400, 20, name="calm")
    theory = 2 * (20 + (64 + 52) * 8 / 400)
    async with (
        Shaper(replace(calm, rate_up_kbps=50, rate_down_kbps=50), listen=LOCAL, to=to) as flooded,
        Shaper(calm, listen=LOCAL, to=to) as quiet,
    ):
        _, flood = await connect(flooded.address)
        flood.write(bytes(200_000))
        times = await round_trips(quiet.address, 12, 64)
        flood.transport.abort()
        assert flooded.summary().up_payload > 1000
    assert min(times) >= theory - 0.1
    assert statistics.median(times) < theory + 25


async def test_invariant_7_with_tcps_backoff_a_stream_resumes_only_when_its_timer_fires(
    serve: Serve, tmp_path: Path
) -> None:
    """Sent 0.1 s into an outage of 0.6 s, with a timeout of 0.21 s: again after 0.21 s in vain, and after 0.63 s."""
    log, outage = tmp_path / "log", Outage(0.5, 0.6)
    spec = replace(FAST, outages=(outage,), tcp_backoff=True)
    async with Shaper(spec, listen=LOCAL, to=await serve(echo), log=log) as shaper:
        reader, writer = await connect(shaper.address)
        writer.write(b"a")
        await reader.readexactly(1)
        await asyncio.sleep((ns_from_ms(600) - shaper.state().now) / SECOND)
        sent, begin = shaper.state().now, time.monotonic()
        assert shaper.state().up_again == ns_from_ms(1100)
        writer.write(b"b")
        await reader.readexactly(1)
        took = time.monotonic() - begin
        await closed(writer)
    wait = 3 * first_rto(10 * MILLISECOND)
    retried = [r for r in read_records(log) if r.kind == "data" and r.dir == "up"][1]
    assert sent + wait <= retried.t_in < sent + wait + 200 * MILLISECOND
    assert took > wait / SECOND
    assert check_log(log).ok
