"""A TCP proxy that enforces a narrow link in real time, without root: the `proxy` backend.

All connections through one listener share one link, as all programs on one edge do. Every packet that TCP would
send is booked on the pure `LinkDirection`: data segments, lone ACKs, handshakes, FINs, retransmissions. Where a
queue would overflow, the proxy stops reading, so that senders feel the link by back-pressure.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from acespec.sim.clock import Clock
from acespec.sim.connection import Connection
from acespec.sim.gate import Gate
from acespec.sim.link import make_link
from acespec.sim.log_check import LinkSummary, Summariser
from acespec.sim.packet_log import PacketLog, PacketRecord
from acespec.sim.sockets import Address, abort, open_listener
from acespec.sim.spec import LinkSpec
from acespec.sim.units import MILLISECOND

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late the machine handed packets over, against the model. It never hands them over early."""

    mean_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class LinkState:
    """The link at a moment: ns since its start, bytes that wait each way, and when an outage, if in one, will end."""

    now: int
    queued_up: int
    queued_down: int
    up_again: int


class Shaper:
    """`async with Shaper(spec, listen=("127.0.0.1", 0), to=(host, port)) as shaper:` serves until the block ends.

    Leaving the block resets the connections that are still open: the link is gone. `on_packet` hears of every packet as
    it is booked. Raises UsageError if `listen` or the log file cannot be had.
    """

    def __init__(
        self,
        spec: LinkSpec,
        *,
        listen: Address,
        to: Address,
        log: str | os.PathLike[str] | None = None,
        command: Sequence[str] = (),
        on_packet: Callable[[PacketRecord], None] | None = None,
    ) -> None:
        self.spec = spec
        self._listen = listen
        self._to = to
        self._log_path = log
        self.address = listen
        """Where it listens; once entered, with the port filled in."""
        self._command = command
        self._on_packet = on_packet
        self._log: PacketLog | None = None
        self._summariser = Summariser()
        self._connections: set[asyncio.Task[None]] = set()
        self._handed_over = self._late_total = self._late_max = 0

    def summary(self) -> LinkSummary:
        """What the link has carried so far."""
        return self._summariser.result()

    def lateness(self) -> Lateness:
        """How late deliveries were so far."""
        mean = self._late_total / max(1, self._handed_over)
        return Lateness(mean / MILLISECOND, self._late_max / MILLISECOND)

    def state(self) -> LinkState:
        """The link as it is now; only while it serves."""
        now = self._clock.now()
        return LinkState(now, self._up.queued_bytes(), self._down.queued_bytes(), self._up.up_from(now))

    async def __aenter__(self) -> Self:
        self._listener = await open_listener(self._listen, self.spec.mtu)
        self.address = self._listener.getsockname()[:2]
        try:
            if self._log_path is not None:
                self._log = PacketLog(self._log_path, self.spec, self._command)
        except BaseException:
            self._listener.close()
            raise
        self._clock = Clock()
        up, down = make_link(self.spec)
        self._up = Gate(up, "up", self._clock, self._record)
        self._down = Gate(down, "down", self._clock, self._record)
        self._acceptor = asyncio.create_task(self._accept())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [self._acceptor, *self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()
        if self._log is not None:
            self._log.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        number = 0
        while True:
            try:
                client, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                log.warning("cannot accept a connection (%s): trying again", error.strerror)
                await asyncio.sleep(0.1)
                continue
            number += 1
            self._start(number, client)

    def _start(self, number: int, client: socket.socket) -> None:
        connection = Connection(
            number,
            client,
            spec=self.spec,
            to=self._to,
            up=self._up,
            down=self._down,
            clock=self._clock,
            late=self._note_lateness,
        )
        task = asyncio.create_task(connection.run(), name=f"link connection {number}")
        self._connections.add(task)
        task.add_done_callback(self._finished)
        # A task cancelled before its first step never reaches its own clean-up.
        task.add_done_callback(lambda _: abort(client))

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s broke", task.get_name(), exc_info=error)

    def _record(self, packet: PacketRecord) -> None:
        self._summariser.add(packet)
        if self._log is not None:
            self._log.write(packet)
        if self._on_packet is not None:
            self._on_packet(packet)

    def _note_lateness(self, late: int) -> None:
        self._handed_over += 1
        self._late_total += late
        self._late_max = max(self._late_max, late)
