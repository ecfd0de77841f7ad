"""A real gRPC server on loopback around `FakeCloud`: what the client meets, without a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc
import grpc.aio

from acespec.proto import wire
from acespec.proto.errors import BadFrame, ProtocolError
from acespec.proto.messages import Open
from tests.edge.fake_cloud import FakeCloud

Context = grpc.aio.ServicerContext[bytes, bytes]


class FakeServer:
    """Runs one `FakeCloud` at one step every `pace_s`. `start` may be called again after `kill`, on the same port.

    With `spawn`, every session but the first has a cloud of its own.
    """

    def __init__(self, cloud: FakeCloud, pace_s: float = 0.002, spawn: Callable[[], FakeCloud] | None = None) -> None:
        self.cloud = cloud
        self._spawn = spawn
        self._clouds: dict[bytes, FakeCloud] = {}
        self.pace_s = pace_s
        self.port = 0
        self.streams = 0
        self.authorization: str | bytes | None = None
        self.kill_at: int | None = None
        self.stalled = False
        self._server: grpc.aio.Server | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self, credentials: grpc.ServerCredentials | None = None) -> None:
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Session": grpc.stream_stream_rpc_method_handler(self._session)
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("acespec.v1.Verifier", handlers),))
        address = f"127.0.0.1:{self.port}"
        self.port = (
            server.add_insecure_port(address) if credentials is None else server.add_secure_port(address, credentials)
        )
        await server.start()
        self._server = server

    async def kill(self) -> None:
        """Drop every connection at once."""
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.005)

    async def _session(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        self.streams += 1
        self.authorization = dict(context.invocation_metadata() or ()).get("authorization")
        answers: asyncio.Queue[bytes | ProtocolError] = asyncio.Queue()
        tasks = [asyncio.create_task(self._serve(requests, answers))]
        try:
            while True:
                answer = await answers.get()
                if isinstance(answer, ProtocolError):
                    await context.abort(getattr(grpc.StatusCode, answer.status), str(answer))
                yield answer
        finally:
            for task in tasks:
                task.cancel()

    async def _serve(self, requests: AsyncIterator[bytes], answers: asyncio.Queue[bytes | ProtocolError]) -> None:
        cloud: FakeCloud | None = None
        work: asyncio.Task[None] | None = None
        try:
            async for data in requests:
                message = wire.decode_edge(data)
                if cloud is None:
                    if not isinstance(message, Open):
                        raise BadFrame("a stream has to begin with an Open")
                    cloud = self._cloud_of(message.session_id)
                    work = asyncio.create_task(self._work(cloud, answers))
                for answer in cloud.receive(data):
                    answers.put_nowait(answer)
            await asyncio.Event().wait()
        except ProtocolError as error:
            answers.put_nowait(error)
        finally:
            if work is not None:
                work.cancel()

    def _cloud_of(self, session_id: bytes) -> FakeCloud:
        if self._spawn is None:
            return self.cloud
        if session_id not in self._clouds:
            self._clouds[session_id] = self._spawn() if self._clouds else self.cloud
        return self._clouds[session_id]

    async def _work(self, cloud: FakeCloud, answers: asyncio.Queue[bytes | ProtocolError]) -> None:
        while True:
            await asyncio.sleep(self.pace_s)
            if not self.stalled:
                cloud.step()
            commit = cloud.commit()
            if commit is not None:
                answers.put_nowait(commit)
