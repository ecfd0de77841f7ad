"""What the tests of real packets share: who may run them, programs for either side, datagrams that carry a number."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from acespec.sim.namespaces import RUN_DIRECTORY, find_tool
from acespec.sim.tun import Side, TunLink

NEEDED = ("ip", "tc", "tcpdump")
needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid")
    or os.geteuid() != 0
    or not Path("/dev/net/tun").exists()
    or not all(map(find_tool, NEEDED)),
    reason="needs root, /dev/net/tun, iproute2 and tcpdump",
)
needs_setpriv = pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")

UDP_HEADERS = 28
PORT = 5000

# Datagrams of `size` bytes, numbered, `gap` seconds apart; the receiver prints "number nanoseconds" until silence.
SEND = """
import socket, sys, time
host, size, gap, count = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
sock.connect((host, 5000))
due = time.monotonic()
for number in range(count):
    print(number, time.monotonic_ns())
    sock.send(number.to_bytes(4, "big") + bytes(size - 4))
    due += gap
    time.sleep(max(0, due - time.monotonic()))
"""
RECEIVE = """
import socket, sys, time
host, silence = sys.argv[1], float(sys.argv[2])
sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
sock.bind((host, 5000))
sock.settimeout(silence)
print("ready", flush=True)
try:
    while True:
        data = sock.recv(65536)
        print(int.from_bytes(data[:4], "big"), time.monotonic_ns())
except TimeoutError:
    pass
"""

Stamps = dict[int, int]


def python(script: str, *arguments: object) -> list[str]:
    return [sys.executable, "-S", "-E", "-c", script, *map(str, arguments)]


async def output(link: TunLink, side: Side, argv: Sequence[str]) -> str:
    process = await link.run(side, argv, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def datagrams(
    link: TunLink, *, size: int, gap: float, count: int, silence: float, host: str | None = None
) -> tuple[Stamps, Stamps]:
    """Sends datagrams up; when each was sent and when it arrived, by number, in order of the event."""
    host = host or link.cloud_ip
    receiver = await link.run("cloud", python(RECEIVE, host, silence), stdout=asyncio.subprocess.PIPE)
    assert receiver.stdout is not None
    assert await receiver.stdout.readline() == b"ready\n"
    sent = await output(link, "edge", python(SEND, host, size, gap, count))
    arrived, _ = await receiver.communicate()
    return _stamps(sent), _stamps(arrived.decode())


def left_behind(pid: int | None = None) -> list[str]:
    """Namespaces of ours by that process, this one by default."""
    if not RUN_DIRECTORY.is_dir():
        return []
    return [entry.name for entry in RUN_DIRECTORY.iterdir() if entry.name.startswith(f"ace-{pid or os.getpid()}-")]


def alive(pid: int) -> bool:
    """Whether it runs; what waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _stamps(text: str) -> Stamps:
    return {int(number): int(at) for number, at in (line.split() for line in text.splitlines())}
