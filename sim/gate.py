"""One direction of the shared link, in real time: senders take turns, and wait for room rather than lose packets.

Where a policer is, there is no room to wait for: then packets are dropped, and it is for the sender to send again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from acespec.sim.clock import Clock
from acespec.sim.link import Direction, Drop, LinkDirection, Passage
from acespec.sim.packet_log import PacketKind, PacketRecord, record_of


class Gate:
    """The only way onto a `LinkDirection`; every booking is reported to `record`."""

    def __init__(
        self, link: LinkDirection, direction: Direction, clock: Clock, record: Callable[[PacketRecord], None]
    ) -> None:
        self.direction: Direction = direction
        self._link = link
        self._clock = clock
        self._record = record
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, nbytes: int, header: int | None = None) -> AsyncIterator[None]:
        """Holds the turn once a packet of that size has room. First come, first served, over all connections."""
        async with self._turn:
            while (t := self._link.room_at(self._clock.now(), nbytes, header)) > self._clock.now():
                await self._clock.sleep_until(t)
            yield

    def book(self, conn: int, kind: PacketKind, nbytes: int = 0, header: int | None = None) -> Passage | Drop:
        """Puts one packet on the link now."""
        now = self._clock.now()
        outcome = self._link.offer(now, nbytes, header)
        self._record(record_of(now, self.direction, conn, kind, nbytes, outcome))
        return outcome

    async def send(self, conn: int, kind: PacketKind, nbytes: int = 0, header: int | None = None) -> Passage | Drop:
        """Waits for a turn and books; only loss or a policer can drop what is sent this way."""
        async with self.turn(nbytes, header):
            return self.book(conn, kind, nbytes, header)

    def up_from(self, t: int) -> int:
        """The first moment at or after `t` that is in no outage."""
        return self._link.up_from(t)

    def queued_bytes(self) -> int:
        """Bytes that wait on the link now, behind the packet in service."""
        return self._link.waiting_bytes(self._clock.now())
