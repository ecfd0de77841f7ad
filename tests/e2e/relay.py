"""A TCP relay that a test can cut, stall, or point at another server."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class Relay:
    """`async with Relay("127.0.0.1:PORT") as relay:` listens on `relay.address` and carries bytes to its target."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self.connections = 0
        self._gates: list[asyncio.Event] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        self.flow()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection, with whatever is under way on it."""
        for writer in self._writers:
            writer.transport.abort()

    def stall(self) -> None:
        """Carry nothing more on the connections there are; they stay open, and new ones work."""
        for gate in self._gates:
            gate.clear()

    def flow(self) -> None:
        """Carry on, late bytes included."""
        for gate in self._gates:
            gate.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self._writers.add(writer)
        gate = asyncio.Event()
        gate.set()
        self._gates.append(gate)
        host, _, port = self.target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            self._writers.add(far_writer)
            await asyncio.gather(self._carry(reader, far_writer, gate), self._carry(far_reader, writer, gate))
            self._writers.discard(far_writer)
        except OSError:
            writer.transport.abort()
        finally:
            self._writers.discard(writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await gate.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
