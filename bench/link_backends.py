"""One link, several ways to make it: theory, the proxy, real packets over `tun`, and the kernel's token bucket.

The same programs run over each: an upload, and 64-byte messages to and fro. From the packet logs (for the kernel, from
a capture at the far end) come the busiest second and ten seconds. The kernel's bucket has no delay, and a small message
finds it full: its round trip misses the delay and the serialisation. It counts 14 bytes of Ethernet with each packet.

    sudo python -m acespec.bench.link_backends
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from acespec.bench import link_traffic
from acespec.bench.link_capture import capture, read_capture
from acespec.proto.errors import AcespecError, UsageError
from acespec.sim.link import LinkSpec
from acespec.sim.namespaces import CLOUD_IP, DEVICE, EDGE_IP, Namespace, cable, find_tool, require_namespaces
from acespec.sim.packet_log import read_records
from acespec.sim.priority import before_others
from acespec.sim.rate_meter import RateMeter
from acespec.sim.shaper import Shaper
from acespec.sim.tun import TunLink
from acespec.sim.units import SECOND, bps_from_kbps, serialisation_ns

PORT = 5000
MESSAGE = 64
ETHERNET = 14
BUCKET = 1600
HOST = "127.0.0.1"

Span = tuple[int, int, int]
"""Start and finish of a packet on the line, and its IP bytes."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one backend did. Kbps; `goodput` is payload, the windows are IP bytes up. Milliseconds."""

    backend: str
    goodput: float
    rtt_ms: float
    worst_1s: float
    worst_10s: float
    load: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """How much is sent."""

    nbytes: int = 120_000
    rounds: int = 40


def theory(spec: LinkSpec) -> Figures:
    """The serialiser: payload's share of full packets, and each small packet's own time on the line."""
    per_byte = 8 / spec.rate_up_kbps + 8 / spec.rate_down_kbps
    rtt = spec.rtt_ms + (MESSAGE + spec.overhead_bytes) * per_byte
    goodput = spec.rate_up_kbps * spec.mss / spec.mtu
    return Figures("theory", goodput, rtt, spec.rate_up_kbps, spec.rate_up_kbps)


def theory_of_bucket(spec: LinkSpec) -> Figures:
    """The same rate over Ethernet frames; small messages find tokens. A window may hold the bucket besides."""
    ip = spec.rate_up_kbps * spec.mtu / (spec.mtu + ETHERNET)
    burst = BUCKET * 8 / 1000
    return Figures("theory of tbf", ip * spec.mss / spec.mtu, 0.0, ip + burst, ip + burst / 10)


async def over_proxy(spec: LinkSpec, work: Work, folder: Path) -> Figures:
    """The proxy, with programs of this namespace; at the priority that `tun` has too, where that is allowed."""
    log = folder / "proxy.jsonl"
    port = _free_port()
    server = await _start(_traffic("serve", HOST, str(port)))
    try:
        await _until_open(port)
        with before_others():
            async with Shaper(spec, listen=(HOST, 0), to=(HOST, port), log=log) as shaper:
                goodput, rtt = await _measure((), *shaper.address, work)
    finally:
        server.terminate()
        await server.wait()
    return _figures("proxy", goodput, rtt, _logged(log))


async def over_tun(spec: LinkSpec, work: Work, folder: Path) -> Figures:
    """Real packets between namespaces."""
    log = folder / "tun.jsonl"
    async with TunLink(spec, log=log) as link:
        await link.run("cloud", _traffic("serve", link.cloud_ip, str(PORT)))
        await link.until_listening("cloud", PORT)
        goodput, rtt = await _measure(link.command("edge", ()), link.cloud_ip, PORT, work)
    return _figures("tun", goodput, rtt, _logged(log))


async def over_bucket(spec: LinkSpec, work: Work, folder: Path) -> Figures:
    """A veth cable with the kernel's token bucket at either end, captured at the far one."""
    pcap = folder / "tbf.pcap"
    with cable(spec.mtu) as (edge, cloud):
        set_bucket(edge, spec.rate_up_kbps, spec.queue_bytes)
        set_bucket(cloud, spec.rate_down_kbps, spec.queue_bytes)
        server = await _start(cloud.command(_traffic("serve", CLOUD_IP, str(PORT))))
        async with capture(cloud, pcap):
            await asyncio.sleep(1)
            goodput, rtt = await _measure(edge.command(()), CLOUD_IP, PORT, work)
        server.terminate()
        await server.wait()
    bps = bps_from_kbps(spec.rate_up_kbps)
    seen = [sighting for sighting in read_capture(pcap) if sighting.source == EDGE_IP]
    return _figures("tbf", goodput, rtt, [(s.t - serialisation_ns(s.wire, bps), s.t, s.wire) for s in seen])


def set_bucket(namespace: Namespace, kbps: float, queue_bytes: int) -> None:
    """A bucket of one frame and a queue of that many bytes. Raises UsageError where the kernel has none."""
    namespace.tc(f"qdisc add dev {DEVICE} root tbf rate {bps_from_kbps(kbps)}bit burst {BUCKET} limit {queue_bytes}")


def worst(packets: Iterable[Span], window: int) -> float:
    """The most that any window of that length carried, in Kbps."""
    meter = RateMeter(window)
    for start, finish, wire in packets:
        meter.add(start, finish, wire)
    return meter.peak_kbps


async def measure(spec: LinkSpec, work: Work, folder: Path) -> list[Figures]:
    """Every backend that this machine has, one after the other."""
    rows = [theory(spec), await over_proxy(spec, work, folder)]
    try:
        require_namespaces()
        rows.append(await over_tun(spec, work, folder))
        if find_tool("tc") is None or find_tool("tcpdump") is None:
            raise UsageError("the kernel's bucket needs tc and tcpdump")
        rows += [theory_of_bucket(spec), await over_bucket(spec, work, folder)]
    except UsageError as error:
        sys.stderr.write(f"the rest is left out: {error}\n")
    return rows


def table(spec: LinkSpec, rows: Sequence[Figures]) -> str:
    """For a person."""
    lines = [
        f"{spec.name}, jitter off, queue {spec.queue_bytes} B; Kbps and ms",
        f"{'':14}{'goodput':>9}{'idle RTT p50':>14}{'worst 1 s':>11}{'worst 10 s':>12}{'load':>7}",
    ]
    for row in rows:
        load = "" if row.load is None else f"{row.load:.1f}"
        lines.append(
            f"{row.backend:14}{row.goodput:9.2f}{row.rtt_ms:14.1f}{row.worst_1s:11.3f}{row.worst_10s:12.3f}{load:>7}"
        )
    return "\n".join(lines) + "\n"


def _figures(backend: str, goodput: float, rtt_ms: float, packets: Sequence[Span]) -> Figures:
    return Figures(
        backend, goodput, rtt_ms, worst(packets, SECOND), worst(packets, 10 * SECOND), load=os.getloadavg()[0]
    )


async def _measure(prefix: Sequence[str], host: str, port: int, work: Work) -> tuple[float, float]:
    """Goodput in Kbps and the median round trip in ms, for clients started behind `prefix`."""
    rounds: dict[str, list[float]] = json.loads(
        await _output([*prefix, *_traffic("rounds", host, str(port), str(work.rounds), str(MESSAGE))])
    )
    sent: dict[str, float] = json.loads(await _output([*prefix, *_traffic("bulk", host, str(port), str(work.nbytes))]))
    return sent["bytes"] * 8 / sent["seconds"] / 1000, statistics.median(rounds["ms"])


def _traffic(*arguments: str) -> list[str]:
    return [sys.executable, link_traffic.__file__, *arguments]


def _logged(log: Path) -> list[Span]:
    return [(r.start, r.finish, r.wire) for r in read_records(log) if r.dir == "up" and r.drop in (None, "loss")]


async def _start(command: Sequence[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(*command)


async def _output(command: Sequence[str]) -> bytes:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise UsageError(f"a client ended with status {process.returncode}")
    return output


def _free_port() -> int:
    with closing(socket.create_server((HOST, 0))) as sock:
        port: int = sock.getsockname()[1]
        return port


async def _until_open(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
        else:
            writer.close()
            await writer.wait_closed()
            return


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="wan50")
    parser.add_argument("--queue-bytes", type=int, default=15_000)
    parser.add_argument("--nbytes", type=int, default=Work().nbytes, help="uploaded over each")
    parser.add_argument("--rounds", type=int, default=Work().rounds)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    try:
        spec = replace(LinkSpec.preset(args.preset), jitter_ms=0, queue_bytes=args.queue_bytes)
        with tempfile.TemporaryDirectory() as folder:
            rows = asyncio.run(measure(spec, Work(args.nbytes, args.rounds), Path(folder)))
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stdout.write(table(spec, rows))
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
