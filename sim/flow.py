"""One direction of one proxied connection: read, book, wait for the release, write. And the ACKs of one host.

Bytes stay in order because one task reads and one task writes. What is on its way is bounded like a TCP window:
when the receiver stops reading, so does the proxy, and then the sender blocks.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

from acespec.sim.clock import Clock
from acespec.sim.gate import Gate
from acespec.sim.link import Drop, Passage
from acespec.sim.packet_log import PacketKind
from acespec.sim.packets import RST_HEADER, DelayedAck
from acespec.sim.stall import first_rto, resumes_after_outage, stall_after_loss

WINDOW = 65536
"""Most stream bytes of one flow on their way at a time."""


class ConnectionGone(Exception):
    """A host reset the connection, and word of it has crossed the link."""


class Host:
    """One end of a connection: its socket, the gate it sends through, and the ACKs that it owes."""

    def __init__(self, sock: socket.socket, gate: Gate, conn: int, mss: int, clock: Clock) -> None:
        self.sock = sock
        self.gate = gate
        self._conn = conn
        self._clock = clock
        self._owed = DelayedAck(mss)
        self._changed = asyncio.Event()
        self._reset = False

    def received(self, nbytes: int) -> None:
        """A segment was handed to this host."""
        self._owed.received(self._clock.now(), nbytes)
        self._changed.set()

    def book(self, kind: PacketKind, nbytes: int = 0) -> Passage | Drop:
        """Sends a packet, with which any ACK owed rides along."""
        self._owed.acknowledged()
        return self.gate.book(self._conn, kind, nbytes)

    async def acknowledge(self) -> None:
        """Sends a lone ACK whenever one falls due. Runs until cancelled."""
        while True:
            await self._clock.wait(self._changed, until=self._owed.due)
            if self._owes_now():
                async with self.gate.turn(0):
                    if self._owes_now():
                        self.book("ack")

    def _owes_now(self) -> bool:
        return self._owed.due is not None and self._owed.due <= self._clock.now()

    async def vanish(self) -> None:
        """This host reset the connection: raises ConnectionGone when the other end would hear of it."""
        if self._reset:
            return
        self._reset = True
        outcome = await self.gate.send(self._conn, "rst", header=RST_HEADER)
        await self._clock.sleep_until(outcome.release if isinstance(outcome, Passage) else outcome.finish)
        raise ConnectionGone


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: PacketKind
    data: bytes
    outcome: Passage | Drop


class Flow:
    """Carries the bytes of `source` to `sink`, FIN included. `late` is told how late each write was, in ns.

    With `tcp_backoff`, what would be sent in an outage waits beyond its end until TCP's timer would fire.
    """

    def __init__(
        self,
        source: Host,
        sink: Host,
        *,
        mss: int,
        rtt: int,
        tcp_backoff: bool,
        clock: Clock,
        late: Callable[[int], None],
    ) -> None:
        self._source = source
        self._sink = sink
        self._mss = mss
        self._rtt = rtt
        self._tcp_backoff = tcp_backoff
        self._clock = clock
        self._late = late
        self._segments: asyncio.Queue[_Segment] = asyncio.Queue()
        self._on_their_way = 0
        self._window_moved = asyncio.Event()

    async def read(self, not_before: int) -> None:
        """Books what `source` sends, at most one segment at a time, until its end of file."""
        await self._clock.sleep_until(not_before)
        loop = asyncio.get_running_loop()
        while True:
            await self._window()
            try:
                data = await loop.sock_recv(self._source.sock, self._mss)
            except OSError:
                return await self._source.vanish()
            await self._book("data" if data else "fin", data)
            if not data:
                return None

    async def write(self) -> None:
        """Hands each segment to `sink` at its release, until the FIN."""
        loop = asyncio.get_running_loop()
        while True:
            segment = await self._segments.get()
            await self._arrival(segment)
            try:
                if segment.kind == "fin":
                    self._sink.sock.shutdown(socket.SHUT_WR)
                else:
                    await loop.sock_sendall(self._sink.sock, segment.data)
            except OSError:
                return await self._sink.vanish()
            self._sink.received(len(segment.data) or 1)
            self._on_their_way -= len(segment.data)
            self._window_moved.set()
            if segment.kind == "fin":
                return None

    async def _window(self) -> None:
        while self._on_their_way >= WINDOW:
            self._window_moved.clear()
            await self._window_moved.wait()

    async def _book(self, kind: PacketKind, data: bytes) -> None:
        outcome = await self._send(kind, len(data))
        self._on_their_way += len(data)
        self._segments.put_nowait(_Segment(kind, data, outcome))

    async def _send(self, kind: PacketKind, nbytes: int) -> Passage | Drop:
        if self._tcp_backoff:
            await self._sit_out_outage()
        async with self._source.gate.turn(nbytes):
            return self._source.book(kind, nbytes)

    async def _sit_out_outage(self) -> None:
        while (back := self._source.gate.up_from(now := self._clock.now())) > now:
            await self._clock.sleep_until(resumes_after_outage(now, back, first_rto(self._rtt)))

    async def _arrival(self, segment: _Segment) -> None:
        """Waits until the segment is across. A dropped one holds up all behind it while it is sent again."""
        outcome, attempt, kind = segment.outcome, 0, segment.kind
        while isinstance(outcome, Drop):
            stall = stall_after_loss(attempt, self._segments.qsize(), self._rtt)
            await self._clock.sleep_until(outcome.finish + stall)
            if not outcome.refused:
                kind = "retransmission"
            outcome = await self._send(kind, len(segment.data))
            attempt += 1
        await self._clock.sleep_until(outcome.release)
        self._late(self._clock.now() - outcome.release)
