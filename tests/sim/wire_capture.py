"""A real 50 Kbps link between two network namespaces, and a capture of what TCP puts on it.

Needs root, iproute2 and tcpdump. Segmentation offload is off, so that captured packets are wire packets.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

NAMESPACE = "acecap"
HERE, THERE = "10.213.77.1", "10.213.77.2"
NEAR, FAR = "acecap0", "acecap1"
SHAPING = "tbf rate 50kbit burst 1600 limit 200000"


@dataclass(frozen=True)
class Captured:
    """IP packets and bytes of one direction."""

    packets: int
    wire: int
    data_packets: int


def sh(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)


@contextmanager
def shaped_pair() -> Iterator[None]:
    """Two ends of a veth cable, each with a 50 Kbps bucket of one packet; the far one in its own namespace."""
    subprocess.run(["ip", "netns", "del", NAMESPACE], check=False, capture_output=True)
    try:
        sh(f"ip netns add {NAMESPACE}")
        sh(f"ip link add {NEAR} type veth peer name {FAR} netns {NAMESPACE}")
        for prefix, device, address in (("ip", NEAR, HERE), (f"ip -n {NAMESPACE}", FAR, THERE)):
            sh(f"{prefix} link set {device} gso_max_segs 1 mtu 1500 up")
            sh(f"{prefix} addr add {address}/30 dev {device}")
        sh(f"tc qdisc add dev {NEAR} root {SHAPING}")
        sh(f"tc -n {NAMESPACE} qdisc add dev {FAR} root {SHAPING}")
        yield
    finally:
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False, capture_output=True)


@contextmanager
def capture(path: Path, port: int) -> Iterator[None]:
    """Writes what passes the near device on that TCP port to a pcap file."""
    arguments = ["tcpdump", "-i", NEAR, "-U", "-w", str(path), "tcp", "port", str(port)]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "listening on" not in (line := process.stderr.readline()):
        if not line:
            raise RuntimeError(f"tcpdump ended with status {process.wait()} before it listened")
    try:
        yield
        time.sleep(0.3)
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def near_server(script: str, prefix: Sequence[str] = ()) -> Iterator[None]:
    """Runs a Python server that says `ready` on stdout."""
    process = subprocess.Popen([*prefix, sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the server did not start")
        yield
    finally:
        process.terminate()
        process.communicate()


def far_server(script: str) -> AbstractContextManager[None]:
    """The same in the far namespace."""
    return near_server(script, ("ip", "netns", "exec", NAMESPACE))


def read_capture(path: Path) -> tuple[Captured, Captured]:
    """(up, down) totals of a classic pcap file of Ethernet frames with IPv4 and TCP."""
    raw, at = path.read_bytes(), 24
    sizes: dict[str, list[tuple[int, int]]] = {HERE: [], THERE: []}
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at + 8)
        ip = raw[at + 16 + 14 : at + 16 + length]
        (total,) = struct.unpack_from(">H", ip, 2)
        headers = 4 * (ip[0] & 15)
        headers += 4 * (ip[headers + 12] >> 4)
        source = ".".join(str(byte) for byte in ip[12:16])
        sizes[source].append((total, total - headers))
        at += 16 + length
    up, down = (
        Captured(len(found), sum(total for total, _ in found), sum(payload > 0 for _, payload in found))
        for found in (sizes[HERE], sizes[THERE])
    )
    return up, down
