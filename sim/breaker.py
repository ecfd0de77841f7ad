"""A TCP relay that can be cut and mended on command, or pointed at another server: outages for real processes.

While it is cut it is as silent as a link without signal: bytes stay where they are, connections stay open, and new ones
are not even answered (on Linux; the accept queue is kept full, so that the kernel drops their SYNs). Once it is mended
everything goes on, late bytes of given-up connections included.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from types import TracebackType
from typing import Self

from acespec.sim.sockets import Address, parse_address

CHUNK = 65536
BACKLOG = 1
FILLERS = 4
"""Connections that fill the accept queue: `BACKLOG` + 1 fit in, on Linux."""


class Breaker:
    """`async with Breaker("127.0.0.1:PORT") as breaker:` listens on `breaker.address` and carries bytes to its target.

    Attributes:
        target: where new connections lead.
        address: where it listens.
        connections: how many were accepted.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self.connections = 0
        self._whole = asyncio.Event()
        self._whole.set()
        self._fillers: list[socket.socket] = []
        self._own: set[Address] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._listener.setblocking(False)
        host, port = self._listener.getsockname()[:2]
        self.address = f"{host}:{port}"
        self._acceptor = asyncio.create_task(self._accept())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.mend()
        tasks = [self._acceptor, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.reset()
        self._listener.close()

    def cut(self) -> None:
        """No signal: nothing is carried, nobody is answered, nobody is told."""
        self._whole.clear()
        self._own.clear()
        for _ in range(FILLERS):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(self._listener.getsockname())
            self._fillers.append(filler)
            self._own.add(filler.getsockname())

    def mend(self) -> None:
        """The signal is back."""
        while self._fillers:
            self._fillers.pop().close()
        self._whole.set()

    def reset(self) -> None:
        """Break every connection there is, so that both ends know; new ones work."""
        for writer in list(self._writers):
            _reset(writer)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._whole.wait()
            client, peer = await loop.sock_accept(self._listener)
            if peer in self._own:
                self._own.discard(peer)
                client.close()
                continue
            task = asyncio.create_task(self._serve(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: socket.socket) -> None:
        self.connections += 1
        with contextlib.ExitStack() as unless_served:
            unless_served.callback(client.close)
            await self._whole.wait()
            unless_served.pop_all()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        near = await asyncio.open_connection(sock=client)
        host, port = parse_address(self.target)
        try:
            far = await asyncio.open_connection(host, port)
        except OSError:
            _reset(near[1])
            return
        self._writers |= {near[1], far[1]}
        try:
            await asyncio.gather(self._carry(near[0], far[1]), self._carry(far[0], near[1]))
        finally:
            for _, writer in (near, far):
                writer.transport.abort()
                self._writers.discard(writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        await self._whole.wait()
        writer.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close at once, by RST."""
    if not writer.transport.is_closing():
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
