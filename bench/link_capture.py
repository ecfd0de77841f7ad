"""tcpdump beside a link: which IP packets passed an interface, when, and which way."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from acespec.proto.errors import UsageError
from acespec.sim.namespaces import DEVICE, Namespace, find_tool
from acespec.sim.units import SECOND

FILE_HEADER = struct.Struct("<IHHiIII")
PACKET_HEADER = struct.Struct("<IIII")
NANOSECONDS = 0xA1B23C4D
FRAME_HEADER = {1: 14, 101: 0, 12: 0}
"""Bytes ahead of the IP header by link type: Ethernet, and raw IP under its two numbers."""
SETTLE_S = 0.3


@dataclass(frozen=True, slots=True)
class Sighting:
    """An IPv4 packet at a moment, in nanoseconds of the wall clock."""

    t: int
    source: str
    wire: int


@asynccontextmanager
async def capture(namespace: Namespace, path: Path) -> AsyncIterator[None]:
    """Writes what passes the interface to a pcap file. Raises UsageError without tcpdump."""
    tcpdump = find_tool("tcpdump")
    if tcpdump is None:
        raise UsageError("a capture needs tcpdump: install it")
    options = ["-i", DEVICE, "-U", "-Z", "root", "--time-stamp-precision=nano", "-w", str(path), "ip"]
    process = await _listening(namespace.command([tcpdump, *options]))
    try:
        yield
        await asyncio.sleep(SETTLE_S)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def _listening(command: Sequence[str]) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    if process.stderr is None:
        raise AssertionError("its stderr is a pipe")
    said = b""
    while b"listening on" not in said:
        said = await process.stderr.readline()
        if not said:
            raise UsageError(f"tcpdump ended with status {await process.wait()} before it listened")
    return process


def read_capture(path: Path) -> list[Sighting]:
    """The IPv4 packets of a little-endian pcap file with nanoseconds, in order."""
    raw = path.read_bytes()
    magic, _, _, _, _, _, link_type = FILE_HEADER.unpack_from(raw)
    if magic != NANOSECONDS or link_type not in FRAME_HEADER:
        raise UsageError(f"{path} is no capture of IP packets that this reader knows")
    seen, at = [], FILE_HEADER.size
    while at < len(raw):
        seconds, nanoseconds, length, _ = PACKET_HEADER.unpack_from(raw, at)
        ip = at + PACKET_HEADER.size + FRAME_HEADER[link_type]
        (total,) = struct.unpack_from(">H", raw, ip + 2)
        seen.append(Sighting(seconds * SECOND + nanoseconds, socket.inet_ntoa(raw[ip + 12 : ip + 16]), total))
        at += PACKET_HEADER.size + length
    return seen
