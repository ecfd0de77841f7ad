"""The gRPC face of the verifier: bytes in and out, a stream a session. All logic is in `Session` and `SessionHost`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc

from acespec.cloud.auth import Keys
from acespec.cloud.host import Hosts, Stream
from acespec.cloud.session_host import SessionHost
from acespec.proto import wire
from acespec.proto.errors import Exhausted, ProtocolError, Unavailable
from acespec.proto.messages import ModelCard

log = logging.getLogger(__name__)

SERVICE = "acespec.v1.Verifier"
Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]


class VerifierService:
    """Handlers of `acespec.v1.Verifier` over raw bytes, so that undecodable ones are answered in our own words."""

    def __init__(self, card: ModelCard, hosts: Hosts, keys: Keys) -> None:
        self._card = wire.encode_card(card)
        self._hosts = hosts
        self._keys = keys
        self._streams: set[Stream] = set()
        self.draining = False

    def handlers(self) -> grpc.GenericRpcHandler:
        """What to register with a server."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Session": grpc.stream_stream_rpc_method_handler(self.session),
                "Describe": grpc.unary_unary_rpc_method_handler(self.describe),
            },
        )

    def drain(self) -> None:
        """Refuse new streams; running ones go on."""
        self.draining = True

    def end_streams(self) -> None:
        """End every stream in a way that tells its edge to resume elsewhere."""
        for stream in self._streams:
            stream.fail(Unavailable("the verifier is shutting down; the session can be resumed on another one"))

    async def describe(self, _request: bytes, context: Context) -> bytes:
        """The model card."""
        try:
            self._keys.principal(_authorization(context))
        except ProtocolError as error:
            await _abort(context, error)
        return self._card

    async def session(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        """One stream: frames are read by a task of their own, so that neither direction waits for the other."""
        stream = Stream()
        reader: asyncio.Task[None] | None = None
        seat = _Seat()
        self._streams.add(stream)
        try:
            if self.draining:
                raise Unavailable("the verifier is draining; try another one, or later")
            principal = self._keys.principal(_authorization(context))
            reader = asyncio.create_task(self._read(requests, principal, stream, seat))
            async for data in _outgoing(stream, seat, reader):
                yield data
        except ProtocolError as error:
            log.info("stream of %s ended: %s", context.peer(), error)
            await _abort(context, error)
        finally:
            self._streams.discard(stream)
            if reader is not None:
                reader.cancel()
            if seat.host is not None:
                seat.host.detach(time.monotonic(), stream)

    async def _read(self, requests: AsyncIterator[bytes], principal: str, stream: Stream, seat: _Seat) -> None:
        try:
            async for data in requests:
                message = wire.decode_edge(data)
                seat.host = self._hosts.receive(time.monotonic(), principal, seat.host, stream, message)
        except ProtocolError as error:
            stream.fail(error)
        finally:
            stream.bell.set()


class _Seat:
    """The session that a stream speaks for, once its `Open` has named it."""

    def __init__(self) -> None:
        self.host: SessionHost | None = None


async def _outgoing(stream: Stream, seat: _Seat, reader: asyncio.Task[None]) -> AsyncIterator[bytes]:
    """Frames to write, until the edge closes its side or the stream fails."""
    while True:
        stream.bell.clear()
        closed = reader.done()
        wake_at: float | None = None
        if seat.host is not None:
            while (message := seat.host.poll(time.monotonic(), stream)) is not None:
                yield wire.encode_cloud(message)
            wake_at = seat.host.session.wake_at()
        # Only now: what the edge still has coming, a last commit above all, must not be lost to a shutdown.
        if stream.error is not None:
            raise stream.error
        if closed:
            return
        await _ring(stream.bell, wake_at)


async def _ring(bell: asyncio.Event, wake_at: float | None) -> None:
    timeout = None if wake_at is None else max(0.001, wake_at - time.monotonic())
    try:
        async with asyncio.timeout(timeout):
            await bell.wait()
    except TimeoutError:
        return


def _authorization(context: Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str):
            return value
    return None


async def _abort(context: Context, error: ProtocolError) -> None:
    trailing: tuple[tuple[str, str], ...] = ()
    if isinstance(error, Exhausted):
        trailing = (("retry-after-ms", str(round(error.retry_after_s * 1000))),)
    await context.abort(getattr(grpc.StatusCode, error.status), str(error), trailing)
