"""What the tests of the shaped link share: peers on real sockets, specs, and a replay of the log."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from dataclasses import replace

from acespec.sim.link import LinkSpec
from acespec.sim.packet_log import PacketRecord
from acespec.sim.units import MILLISECOND, serialisation_ns

Address = tuple[str, int]
LOCAL = ("127.0.0.1", 0)
FAST = LinkSpec(4000, 4000, 5, queue_bytes=15000, name="fast")
WAN50 = replace(LinkSpec.preset("wan50"), jitter_ms=0)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


def pinned_socket(address: Address) -> socket.socket:
    """A client whose congestion control does not depend on the machine's default."""
    sock = socket.create_connection(address)
    if hasattr(socket, "TCP_CONGESTION"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    return sock


async def connect(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(sock=pinned_socket(address))


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def check_booking(records: list[PacketRecord], spec: LinkSpec) -> None:
    """Replays the log through the Lindley recursion: order, work conservation, rate, earliness, headers."""
    header = {"syn": 60, "syn-ack": 60, "rst": 40}
    for direction, kbps in (("up", spec.rate_up_kbps), ("down", spec.rate_down_kbps)):
        free = last_release = 0
        for record in (r for r in records if r.dir == direction):
            assert record.drop is None
            assert record.wire == record.bytes + header.get(record.kind, spec.overhead_bytes) <= spec.mtu
            assert record.start == max(record.t_in, free)
            free = record.start + serialisation_ns(record.wire, round(kbps * 1000))
            assert record.finish == free
            assert record.release is not None
            assert record.release >= max(free + spec.delay_ms * MILLISECOND, last_release)
            last_release = record.release


async def round_trips(address: Address, count: int, nbytes: int) -> list[float]:
    """Milliseconds of ping-pong rounds on one connection, the handshake left out."""
    reader, writer = await connect(address)
    writer.write(b"x")
    await reader.readexactly(1)
    times = []
    for _ in range(count):
        begin = time.monotonic()
        writer.write(bytes(nbytes))
        await reader.readexactly(nbytes)
        times.append((time.monotonic() - begin) * 1000)
    await closed(writer)
    return times
