"""Real packets between two namespaces: what each costs, what is dropped, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from acespec.bench import link_traffic
from acespec.proto.errors import UsageError
from acespec.sim import namespaces, tun_device
from acespec.sim.link import Drop, LinkDirection, LinkSpec
from acespec.sim.link_check import check_log
from acespec.sim.loss import GilbertElliott
from acespec.sim.namespaces import Namespace, remove_stale, stale_namespaces
from acespec.sim.outages import Outage
from acespec.sim.packet_log import read_records
from acespec.sim.tun import TunLink
from acespec.sim.units import MILLISECOND, SECOND, serialisation_ns

from .tun_lab import PORT, UDP_HEADERS, alive, datagrams, left_behind, needs_root, needs_setpriv, output

pytestmark = [needs_root, pytest.mark.root]
SLOW = LinkSpec(50, 50, 20, queue_bytes=3000, name="slow")
FAST = LinkSpec(2000, 1000, 10, queue_bytes=30_000, name="fast")


async def test_a_small_datagram_pays_its_serialisation_and_the_delay_and_is_never_early() -> None:
    async with TunLink(SLOW) as link:
        sent, arrived = await datagrams(link, size=64, gap=0.05, count=12, silence=0.4)
        assert link.lateness().count == 12
    theory = serialisation_ns(64 + UDP_HEADERS, 50_000) + 20 * MILLISECOND
    took = [arrived[number] - sent[number] for number in range(12)]
    assert min(took) >= theory
    assert statistics.median(took) < theory + 15 * MILLISECOND


async def test_what_does_not_fit_the_queue_is_dropped_from_its_tail(tmp_path: Path) -> None:
    """Ten packets of 1000 bytes at once: one on the line, three in the queue of 3000."""
    async with TunLink(SLOW, log=tmp_path / "log") as link:
        sent, arrived = await datagrams(link, size=1000 - UDP_HEADERS, gap=0, count=10, silence=0.5)
        summary = link.summary()
    assert list(arrived) == [0, 1, 2, 3]
    assert all(arrived[n] - sent[0] >= ((n + 1) * 160 + 20) * MILLISECOND for n in arrived)
    assert (summary.up_packets, summary.up_wire, summary.refused) == (4, 4000, 6)
    assert check_log(tmp_path / "log").ok


@pytest.mark.parametrize("loss", [40.0, GilbertElliott(0.2, 0.3)], ids=["independent", "bursts"])
async def test_the_packets_lost_are_those_that_the_seed_says(loss: float | GilbertElliott, tmp_path: Path) -> None:
    spec = replace(FAST, seed=5).varied(loss=loss)
    model = LinkDirection(spec, "up")
    expected = [n for n in range(60) if not isinstance(model.offer(n * SECOND, 100), Drop)]
    async with TunLink(spec, log=tmp_path / "log") as link:
        _, arrived = await datagrams(link, size=72, gap=0.003, count=60, silence=0.3)
        assert link.summary().lost == 60 - len(expected)
    assert list(arrived) == expected
    assert check_log(tmp_path / "log").ok


async def test_an_outage_holds_packets_back_in_order_and_loses_none(tmp_path: Path) -> None:
    """Long enough to begin before, and end after, whatever the programs need to start."""
    spec = replace(FAST, outages=(Outage(0, 1.2),))
    async with TunLink(spec, log=tmp_path / "log") as link:
        _, arrived = await datagrams(link, size=72, gap=0.005, count=40, silence=1.5)
    assert list(arrived) == list(range(40))
    records = list(read_records(tmp_path / "log"))
    assert min(r.t_in for r in records) < 1.1 * SECOND
    assert min(r.start for r in records) >= 1.2 * SECOND
    assert check_log(tmp_path / "log").ok


async def test_jitter_keeps_the_order(tmp_path: Path) -> None:
    async with TunLink(replace(FAST, jitter_ms=20), log=tmp_path / "log") as link:
        sent, arrived = await datagrams(link, size=72, gap=0.004, count=60, silence=0.4)
    assert list(arrived) == list(range(60))
    took = [arrived[n] - sent[n] for n in arrived]
    assert min(took) >= 10 * MILLISECOND + serialisation_ns(100, 2_000_000)
    assert statistics.pstdev(took) > 5 * MILLISECOND
    assert check_log(tmp_path / "log").ok


@pytest.mark.parametrize(
    "spec",
    [
        replace(FAST, half_duplex=True),
        replace(FAST, mode="police", burst_bytes=6000),
        replace(FAST, mtu=576, queue_bytes=6000),
        replace(FAST, loss_percent=1, jitter_ms=3, outages=(Outage(0.4, 0.2),)),
    ],
    ids=["half-duplex", "policed", "small-mtu", "troubled"],
)
async def test_tcp_gets_its_bytes_across_and_the_log_proves_the_link(spec: LinkSpec, tmp_path: Path) -> None:
    """The kernel's TCP: no packet is larger than the MTU, and the full ones reach it."""
    async with TunLink(spec, log=tmp_path / "log") as link:
        await link.run("cloud", [sys.executable, link_traffic.__file__, "serve", link.cloud_ip, str(PORT)])
        await link.until_listening("cloud", PORT)
        upload = [sys.executable, link_traffic.__file__, "bulk", link.cloud_ip, str(PORT), "60000"]
        assert '"bytes"' in await output(link, "edge", upload)
    report = check_log(tmp_path / "log")
    assert report.ok, report.line()
    records = list(read_records(tmp_path / "log"))
    assert max(r.wire for r in records) == spec.mtu
    assert {r.kind for r in records} == {"packet"}
    assert {r.bytes - r.wire for r in records} == {0}
    if spec.half_duplex:
        carried = [r for r in records if r.drop is None]
        assert all(a.finish <= b.start for a, b in pairwise(carried))


@pytest.mark.skipif(not namespaces.IPV6.exists(), reason="this kernel has no IPv6")
async def test_any_protocol_crosses_and_the_kernel_adds_no_chatter(tmp_path: Path) -> None:
    async with TunLink(FAST, log=tmp_path / "log") as link:
        for side, own, peer in (("edge", "fd77::1", "fd77::2"), ("cloud", "fd77::2", "fd77::1")):
            link.namespaces[side].configure(  # type: ignore[index] # one of two words
                [f"addr add {own} peer {peer} dev ace0 nodad"]
            )
        _, arrived = await datagrams(link, size=72, gap=0.01, count=5, silence=0.3, host="fd77::2")
    assert list(arrived) == list(range(5))
    sizes = [r.wire for r in read_records(tmp_path / "log") if r.dir == "up"]
    # Multicast reports may announce the addresses that this test adds.
    assert sizes.count(72 + 48) == 5


async def test_an_idle_link_carries_nothing() -> None:
    async with TunLink(FAST) as link:
        await output(link, "edge", ["sleep", "0.3"])
        state = link.state()
    summary = link.summary()
    assert summary.up_packets == summary.down_packets == 0
    assert state.queued_up == state.queued_down == 0
    assert state.up_again <= state.now


async def test_everything_is_removed_whatever_happens_inside(tmp_path: Path) -> None:
    """Also a program that ignores SIGTERM, and one that another one started."""
    with pytest.raises(ZeroDivisionError):
        async with TunLink(SLOW) as link:
            stubborn = await link.run("cloud", ["sh", "-c", "trap '' TERM; sleep 60 & sleep 60"])
            while len(pids := link.namespaces["cloud"].pids()) < 3:
                await asyncio.sleep(0.01)
            assert left_behind()
            raise ZeroDivisionError
    assert stubborn.returncode == -signal.SIGKILL
    assert not any(alive(pid) for pid in pids)
    assert left_behind() == []
    assert "acetun" not in namespaces.ip("link")


async def test_a_log_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write link log"):
        async with TunLink(SLOW, log=tmp_path / "no" / "log"):
            pass
    assert left_behind() == []


async def test_two_links_at_once_keep_apart() -> None:
    async with TunLink(SLOW) as one, TunLink(FAST) as other:
        _, arrived = await datagrams(other, size=72, gap=0.01, count=5, silence=0.2)
        assert len(arrived) == 5
        assert one.summary().up_packets == 0


def test_what_a_killed_process_left_is_found_and_removed_but_not_what_lives() -> None:
    script = (
        "import os; from acespec.sim.namespaces import Namespace as N; N('edge').__enter__(); os.kill(os.getpid(), 9)"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    assert process.wait() == -signal.SIGKILL
    (orphan,) = left_behind(process.pid)
    with Namespace("edge") as living:
        assert orphan in stale_namespaces()
        assert living.name not in stale_namespaces()
        assert orphan in remove_stale()
        assert living.name in left_behind()
    assert left_behind(process.pid) == left_behind() == []


def test_a_process_id_that_came_round_again_is_not_taken_for_the_owner() -> None:
    name = f"ace-{os.getpid()}-1-1-edge"
    namespaces.ip("netns", "add", name)
    assert name in stale_namespaces()
    assert name in remove_stale()


@needs_setpriv
@pytest.mark.parametrize("capability", ["net_admin", "sys_admin"])
def test_without_a_capability_it_says_so(capability: str) -> None:
    main = "from acespec.sim.cli import main; main()"
    done = subprocess.run(
        ["setpriv", f"--bounding-set=-{capability}", sys.executable, "-c", main, "tun", "--", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"CAP_{capability.upper()} missing" in done.stderr
    assert "acespec-sim link" in done.stderr
    assert len(done.stderr.splitlines()) == 1


async def test_without_iproute_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(namespaces, "SBIN", ())
    with pytest.raises(UsageError, match="install iproute2"):
        async with TunLink(SLOW):
            pass


async def test_without_tun_devices_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tun_device, "CONTROL", "/dev/net/no-tun")
    with pytest.raises(UsageError, match=r"no-tun .*load the kernel module `tun`"):
        async with TunLink(SLOW):
            pass
    assert left_behind() == []


async def test_waiting_for_a_listener_ends_with_an_error_if_there_is_none() -> None:
    async with TunLink(SLOW) as link:
        with pytest.raises(UsageError, match="nothing listens on port 81 of the cloud"):
            await link.until_listening("cloud", 81, timeout_s=0.1)
