"""One proxied connection over the link: handshake, two flows, and its end by FIN or reset."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from acespec.sim.clock import Clock
from acespec.sim.flow import ConnectionGone, Flow, Host
from acespec.sim.gate import Gate
from acespec.sim.link import Passage
from acespec.sim.packet_log import PacketKind
from acespec.sim.packets import DELAYED_ACK, RST_HEADER, SYN_HEADER
from acespec.sim.sockets import Address, abort, connect, format_address, send_at_once
from acespec.sim.spec import LinkSpec
from acespec.sim.units import SECOND, ns_from_ms

log = logging.getLogger(__name__)

SYN_TIMEOUT = SECOND
"""Initial retransmission timeout (RFC 6298)."""


class Connection:
    """Runs one accepted client socket to its end; `run` always leaves both sockets closed."""

    def __init__(
        self,
        number: int,
        client: socket.socket,
        *,
        spec: LinkSpec,
        to: Address,
        up: Gate,
        down: Gate,
        clock: Clock,
        late: Callable[[int], None],
    ) -> None:
        self._number = number
        self._client = client
        self._spec = spec
        self._to = to
        self._up = up
        self._down = down
        self._clock = clock
        self._late = late

    async def run(self) -> None:
        """Connects upstream when the SYN is across, then carries bytes both ways until both ends are done."""
        server: socket.socket | None = None
        clean = False
        try:
            send_at_once(self._client)
            await self._cross(self._up, "syn")
            server = await self._connect()
            if server is not None:
                await self._carry(server)
                clean = True
        except* ConnectionGone:
            log.debug("connection %d was reset", self._number)
        finally:
            for sock in (self._client, server):
                if sock is not None:
                    sock.close() if clean else abort(sock)

    async def _connect(self) -> socket.socket | None:
        """The upstream socket; if there is none to be had, None once word of it is back at the client."""
        try:
            return await connect(self._to, self._spec.mtu)
        except OSError as error:
            reason = error.strerror or error
            log.warning("connection %d: %s: %s; is it serving?", self._number, format_address(self._to), reason)
        outcome = await self._down.send(self._number, "rst", header=RST_HEADER)
        await self._clock.sleep_until(outcome.release if isinstance(outcome, Passage) else outcome.finish)
        return None

    async def _carry(self, server: socket.socket) -> None:
        """The client may send once the SYN-ACK is back, the server once the ACK of that has arrived."""
        await self._cross(self._down, "syn-ack")
        opened = self._clock.now()
        accepted = await self._acknowledge_syn()
        at_client, at_server = self._host(self._client, self._up), self._host(server, self._down)
        up, down = self._flow(at_client, at_server), self._flow(at_server, at_client)
        async with asyncio.TaskGroup() as endless:
            acks = [endless.create_task(host.acknowledge()) for host in (at_client, at_server)]
            async with asyncio.TaskGroup() as flows:
                for part in (up.read(opened), up.write(), down.read(accepted), down.write()):
                    flows.create_task(part)
            # The ACK of the last FIN may still be due.
            await asyncio.sleep(DELAYED_ACK / SECOND)
            for task in acks:
                task.cancel()

    def _host(self, sock: socket.socket, gate: Gate) -> Host:
        return Host(sock, gate, self._number, self._spec.mss, self._clock)

    def _flow(self, source: Host, sink: Host) -> Flow:
        rtt = ns_from_ms(self._spec.rtt_ms)
        return Flow(
            source,
            sink,
            mss=self._spec.mss,
            rtt=rtt,
            tcp_backoff=self._spec.tcp_backoff,
            clock=self._clock,
            late=self._late,
        )

    async def _cross(self, gate: Gate, kind: PacketKind) -> None:
        """Sends a handshake packet, again if lost, and waits until it is across."""
        timeout = SYN_TIMEOUT
        while not isinstance(outcome := await gate.send(self._number, kind, header=SYN_HEADER), Passage):
            await self._clock.sleep_until(outcome.finish + timeout)
            timeout *= 2
        await self._clock.sleep_until(outcome.release)

    async def _acknowledge_syn(self) -> int:
        """When the server has the last packet of the handshake."""
        outcome = await self._up.send(self._number, "ack")
        # A lost one is made good by the first data, about a round trip later.
        return outcome.release if isinstance(outcome, Passage) else outcome.finish + ns_from_ms(self._spec.rtt_ms)
