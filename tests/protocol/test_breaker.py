"""The breaker: silent while it is cut, as if nothing had happened afterwards."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from acespec.sim.breaker import Breaker

SOON = 5.0
NEVER = 0.3


@asynccontextmanager
async def echo(prefix: bytes = b"") -> AsyncIterator[str]:
    """A server that says back what it hears, line by line."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(prefix + line)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


class Caller:
    def __init__(self, address: str) -> None:
        self.host, _, self.port = address.rpartition(":")

    async def __aenter__(self) -> Caller:
        self.reader, self.writer = await asyncio.open_connection(self.host, int(self.port))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.writer.transport.abort()

    async def say(self, word: bytes) -> None:
        self.writer.write(word + b"\n")

    async def hear(self, timeout: float = SOON) -> bytes:
        return await asyncio.wait_for(self.reader.readline(), timeout)


async def test_bytes_pass_and_wait_while_it_is_cut() -> None:
    async with echo() as target, Breaker(target) as breaker, Caller(breaker.address) as caller:
        await caller.say(b"one")
        assert await caller.hear() == b"one\n"
        breaker.cut()
        await caller.say(b"two")
        with pytest.raises(TimeoutError):
            await caller.hear(NEVER)
        breaker.mend()
        assert await caller.hear() == b"two\n"
        assert breaker.connections == 1


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels refuse where Linux stays silent")
async def test_new_connections_are_not_answered_while_it_is_cut() -> None:
    async with echo() as target, Breaker(target) as breaker:
        breaker.cut()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Caller(breaker.address).__aenter__(), NEVER)
        breaker.mend()
        async with Caller(breaker.address) as caller:
            await caller.say(b"again")
            assert await caller.hear() == b"again\n"


async def test_a_reset_is_heard_and_new_connections_lead_elsewhere() -> None:
    async with echo() as one, echo(b"other ") as other, Breaker(one) as breaker:
        async with Caller(breaker.address) as caller:
            await caller.say(b"one")
            assert await caller.hear() == b"one\n"
            breaker.target = other
            breaker.reset()
            with pytest.raises(ConnectionResetError):
                await caller.hear()
        async with Caller(breaker.address) as caller:
            await caller.say(b"two")
            assert await caller.hear() == b"other two\n"


async def test_a_server_that_is_not_there_ends_the_connection() -> None:
    async with echo() as target:
        pass
    async with Breaker(target) as breaker, Caller(breaker.address) as caller:
        with pytest.raises(ConnectionResetError):
            await caller.hear()


@pytest.mark.slow
async def test_cutting_again_and_again_leaks_nothing() -> None:
    async with echo() as target, Breaker(target) as breaker:
        for number in range(20):
            breaker.cut()
            await asyncio.sleep(0.01)
            breaker.mend()
            async with Caller(breaker.address) as caller:
                await caller.say(b"%d" % number)
                assert await caller.hear() == b"%d\n" % number
