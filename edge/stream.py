"""One gRPC stream that carries a session: two pumps between its bytes and the session's state machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import grpc.aio

from acespec.edge.channel import FAILED_WRITE, SESSION_METHOD, Endpoint, error_of, is_broken_transport
from acespec.edge.events import Event
from acespec.edge.session import EdgeSession
from acespec.proto.errors import ProtocolError, Unavailable

TRUE_STATUS_S = 1.0
"""How long the true status of a stream may take once a write has failed."""


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The stream carries nothing any more.

    Attributes:
        retry: the transport broke, so the session may go on with a new one.
        vague: why it ended was never said: it may have been a refusal.
    """

    error: ProtocolError
    retry: bool
    vague: bool = False


class Stream:
    """Runs until the other end, the network or a protocol fault ends it; says so once through `on_end`.

    `on_event` and `on_end` are called from the event loop and must not block.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        endpoint: Endpoint,
        session: EdgeSession,
        *,
        on_event: Callable[[Event], None],
        on_end: Callable[[Stream, StreamEnded], None],
    ) -> None:
        self._target = endpoint.target
        self._session = session
        self._on_event = on_event
        self._on_end = on_end
        self._wake = asyncio.Event()
        # No serialisers: the session makes the bytes itself, so that what it counts is what is sent.
        method: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(SESSION_METHOD)
        self._call = method(metadata=endpoint.metadata)
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]

    def wake(self) -> None:
        """The session may have something to write."""
        self._wake.set()

    async def close(self) -> None:
        """End the stream, not its channel. What the session still holds can go on with another one."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._call.cancel()

    async def _read(self) -> None:
        ended = await self._read_all()
        self._on_end(self, ended)

    async def _read_all(self) -> StreamEnded:
        try:
            while True:
                data = await self._call.read()
                if not isinstance(data, bytes):  # gRPC's EOF marker
                    return await self._ended()
                for event in self._session.receive(time.monotonic(), data):
                    self._on_event(event)
                self._wake.set()
        except grpc.aio.AioRpcError:
            return await self._ended()
        except ProtocolError as fault:
            return StreamEnded(fault, retry=False)

    async def _write(self) -> None:
        try:
            while True:
                self._wake.clear()
                data = self._session.poll(time.monotonic())
                if data is None:
                    await self._sleep_until(self._session.wake_at())
                else:
                    await self._call.write(data)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # The reader learns why and reports it.

    async def _sleep_until(self, wake_at: float | None) -> None:
        try:
            async with asyncio.timeout(None if wake_at is None else max(0.0, wake_at - time.monotonic())):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _ended(self) -> StreamEnded:
        code, details = await self._status()
        if code is grpc.StatusCode.OK:
            error: ProtocolError = Unavailable(f"{self._target} has ended the stream; it may be shutting down")
            return StreamEnded(error, retry=True)
        retry = is_broken_transport(code.name, details)
        return StreamEnded(error_of(code.name, details, self._target), retry, vague=details == FAILED_WRITE)

    async def _status(self) -> tuple[grpc.StatusCode, str]:
        """The true status: grpc.aio puts its own in the place of it for a moment if a write fails first."""
        deadline = time.monotonic() + TRUE_STATUS_S
        # grpc.aio has no event for it.
        while (details := await self._call.details()) == FAILED_WRITE and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return await self._call.code(), details
