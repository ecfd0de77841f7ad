"""Peers for the shaped link: loopback servers that the tests script."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from .peers import Address

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Serve = Callable[[Handler], Awaitable[Address]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a loopback server for a handler; all end with the test. A handler may die of a reset."""
    servers: list[asyncio.Server] = []
    writers: list[asyncio.StreamWriter] = []

    async def start(handler: Handler) -> Address:
        async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await handler(reader, writer)

        server = await asyncio.start_server(guarded, "127.0.0.1", 0)
        servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        return host, port

    yield start
    for server in servers:
        server.close()
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.fixture
def free_port() -> int:
    """A loopback port on which nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
