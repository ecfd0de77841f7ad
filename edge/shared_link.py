"""One gRPC connection to a verifier for any number of sessions, with one budget for what they send.

Each session has a stream of its own on it. When the connection breaks, all of them lose their streams; the first that
comes back opens a new connection, and the others find it there. A channel is closed when its last stream has left it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

import grpc
import grpc.aio

from acespec.edge.channel import DESCRIBE_METHOD, Endpoint, error_of
from acespec.edge.link_budget import LinkBudget
from acespec.proto import wire
from acespec.proto.messages import ModelCard


@dataclass(slots=True)
class _Line:
    """One channel, and how many streams use it."""

    number: int
    channel: grpc.aio.Channel
    users: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to use a channel, until `SharedLink.release`."""

    channel: grpc.aio.Channel
    number: int


class SharedLink:
    """The connection to one verifier, for `Client(..., link=...)`. Use it as an async context manager around them.

    Attributes:
        endpoint: where it leads.
        budget: what is in flight on it, and what is known of its rate and round trip.
        connections: how many channels were opened so far; one, as long as nothing breaks.
    """

    def __init__(self, endpoint: Endpoint, *, lingers: bool = True) -> None:
        """`lingers`: the connection stays when its last stream has ended."""
        self.endpoint = endpoint
        self.budget = LinkBudget()
        self.connections = 0
        self._lingers = lingers
        self._lines: dict[int, _Line] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection, and with it all streams on it."""
        lines, self._lines = self._lines, {}
        for line in lines.values():
            await line.channel.close(grace=None)

    def lease(self, *, failed: int = 0, attempt: int = 0, rtt: float = 0.0, rate: float | None = None) -> Lease:
        """A channel for one more stream: the newest one, unless it is known to be broken.

        Args:
            failed: number of the lease whose stream broke, if this one is to replace it.
            attempt, rtt, rate: see `Endpoint.connect`; for a new channel.
        """
        line = self._usable(failed)
        if line is None:
            self.connections += 1
            line = _Line(self.connections, self.endpoint.connect(attempt, rtt, rate))
            self._lines[line.number] = line
        line.users += 1
        return Lease(line.channel, line.number)

    async def release(self, lease: Lease, *, suspect: bool = False) -> None:
        """A stream has left its channel. `suspect`: the connection may be broken; nobody should find it."""
        line = self._lines.get(lease.number)
        if line is None:
            return
        line.users -= 1
        if line.users == 0 and (suspect or not self._lingers):
            await self._hang_up(line)
        for old in [each for each in self._lines.values() if each.users == 0 and each.number < self.connections]:
            await self._hang_up(old)

    async def describe(self) -> ModelCard:
        """What the verifier serves.

        Raises:
            ProtocolError: it cannot be reached, or refuses.
        """
        lease, suspect = self.lease(), True
        try:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = lease.channel.unary_unary(DESCRIBE_METHOD)
            card = wire.decode_card(await method(b"", metadata=self.endpoint.metadata))
            suspect = False
            return card
        except grpc.aio.AioRpcError as fault:
            raise error_of(fault.code().name, fault.details(), self.endpoint.target) from fault
        finally:
            await self.release(lease, suspect=suspect)

    async def _hang_up(self, line: _Line) -> None:
        if self._lines.pop(line.number, None) is not None:
            await line.channel.close(grace=None)

    def _usable(self, failed: int) -> _Line | None:
        """The newest channel, if a stream may be opened on it.

        gRPC fails a stream at once while a channel waits for its next attempt to connect, and those waits suit no
        link that comes and goes: such a channel is left alone, as is one that has failed this user and is not up.
        """
        line = self._lines.get(self.connections)
        if line is None:
            return None
        state = line.channel.get_state()
        if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
            return None
        if line.number == failed and state is not grpc.ChannelConnectivity.READY:
            return None
        return line
