"""The real-time proxy as a carrier of streams: bytes, ends, resets, loss, errors. Real sockets."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import random
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from acespec.proto.errors import UsageError
from acespec.sim.log_check import summarise
from acespec.sim.packet_log import read_records
from acespec.sim.shaper import Shaper

from .conftest import Serve
from .peers import FAST, LOCAL, check_booking, closed, connect, echo, pinned_socket, reset


async def test_bytes_come_out_as_they_went_in_under_any_chunking(serve: Serve, tmp_path: Path) -> None:
    to = await serve(echo)
    log = tmp_path / "log"
    sizes = random.Random(1)

    async def one(shaper: Shaper, seed: int) -> None:
        data = random.Random(seed).randbytes(30_000)
        reader, writer = await connect(shaper.address)

        async def push() -> None:
            left = data
            while left:
                n = sizes.choice([1, 17, 512, 1448, 5000])
                writer.write(left[:n])
                left = left[n:]
                await writer.drain()
                await asyncio.sleep(0)
            writer.write_eof()

        _, back = await asyncio.gather(push(), reader.read(-1))
        assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()
        await closed(writer)

    async with Shaper(replace(FAST, jitter_ms=2), listen=LOCAL, to=to, log=log) as shaper:
        await asyncio.gather(*(one(shaper, seed) for seed in range(4)))
        summary = shaper.summary()
    assert (summary.up_payload, summary.down_payload) == (120_000, 120_000)
    assert summary == summarise(log)
    assert summary.rate_ok(FAST)
    check_booking(list(read_records(log)), FAST)


async def test_half_close_lets_the_answer_come_back(serve: Serve) -> None:
    async def answer_after_eof(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = await reader.read(-1)
        writer.write(b"you said " + question)
        writer.write_eof()

    to = await serve(answer_after_eof)
    async with Shaper(FAST, listen=LOCAL, to=to) as shaper:
        reader, writer = await connect(shaper.address)
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read(-1) == b"you said hello"
        await closed(writer)


async def test_the_server_may_end_first(serve: Serve) -> None:
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def greet_and_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        writer.write_eof()
        received.set_result(await reader.read(-1))

    to = await serve(greet_and_end)
    async with Shaper(FAST, listen=LOCAL, to=to) as shaper:
        reader, writer = await connect(shaper.address)
        assert await reader.read(-1) == b"bye"
        writer.write(b"still here")
        writer.write_eof()
        assert await asyncio.wait_for(received, 5) == b"still here"
        await closed(writer)


async def test_a_clients_reset_reaches_the_server_after_its_data_and_the_delay(serve: Serve) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[bytes, float, type[BaseException] | None]] = loop.create_future()

    async def watch(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        got = await reader.readexactly(4)
        try:
            await reader.read(1)
            ended.set_result((got, time.monotonic(), None))
        except ConnectionError as error:
            ended.set_result((got, time.monotonic(), type(error)))

    spec = replace(FAST, delay_ms=60)
    async with Shaper(spec, listen=LOCAL, to=await serve(watch)) as shaper:
        client = await asyncio.to_thread(pinned_socket, shaper.address)
        client.sendall(b"last")
        await asyncio.sleep(0.3)
        at = time.monotonic()
        reset(client)
        got, when, how = await asyncio.wait_for(ended, 5)
    assert got == b"last"
    assert how is ConnectionResetError
    assert when - at >= 0.059


async def test_a_servers_reset_reaches_the_client(serve: Serve) -> None:
    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)
        reset(writer.get_extra_info("socket").dup())
        writer.transport.abort()

    async with Shaper(FAST, listen=LOCAL, to=await serve(slam)) as shaper:
        reader, writer = await connect(shaper.address)
        writer.write(b"hi")
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), 5)
        writer.close()


async def test_a_client_that_is_gone_does_not_disturb_the_others(serve: Serve) -> None:
    async with Shaper(FAST, listen=LOCAL, to=await serve(echo)) as shaper:
        for _ in range(5):
            client = await asyncio.to_thread(pinned_socket, shaper.address)
            client.sendall(b"x" * 3000)
            reset(client)
        reader, writer = await connect(shaper.address)
        writer.write(b"alive")
        assert await asyncio.wait_for(reader.readexactly(5), 5) == b"alive"
        await closed(writer)


async def test_nobody_behind_the_link(free_port: int, caplog: pytest.LogCaptureFixture) -> None:
    async with Shaper(FAST, listen=LOCAL, to=("127.0.0.1", free_port)) as shaper:
        reader, writer = await connect(shaper.address)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), 5)
        writer.close()
    assert f"127.0.0.1:{free_port}" in caplog.text
    assert "is it serving?" in caplog.text


async def test_leaving_the_block_resets_what_is_open(serve: Serve) -> None:
    async with Shaper(FAST, listen=LOCAL, to=await serve(echo)) as shaper:
        reader, writer = await connect(shaper.address)
        writer.write(b"x")
        await reader.readexactly(1)
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(1), 5)
    writer.close()
    with pytest.raises(OSError) as refused:
        socket.create_connection(shaper.address, timeout=1)
    assert refused.value.errno == errno.ECONNREFUSED


async def test_a_taken_port_is_a_clear_error(serve: Serve) -> None:
    taken = await serve(echo)
    with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{taken[1]}"):
        async with Shaper(FAST, listen=taken, to=taken):
            pass


async def test_an_unwritable_log_leaves_no_listener(serve: Serve, tmp_path: Path, free_port: int) -> None:
    listen = ("127.0.0.1", free_port)
    with pytest.raises(UsageError, match="cannot write"):
        async with Shaper(FAST, listen=listen, to=await serve(echo), log=tmp_path / "no" / "log"):
            pass
    async with Shaper(FAST, listen=listen, to=LOCAL) as shaper:
        assert shaper.address == listen


async def test_loss_is_seen_as_stalls_and_every_retransmission_is_booked(serve: Serve, tmp_path: Path) -> None:
    log = tmp_path / "log"
    spec = replace(FAST, loss_percent=15, seed=4)
    data = random.Random(0).randbytes(20_000)
    async with Shaper(spec, listen=LOCAL, to=await serve(echo), log=log) as shaper:
        reader, writer = await connect(shaper.address)
        writer.write(data)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(-1), 30) == data
        await closed(writer)
    records = list(read_records(log))
    lost_data = [r for r in records if r.drop == "loss" and r.kind in ("data", "fin", "retransmission")]
    assert lost_data
    assert len(lost_data) == sum(r.kind == "retransmission" for r in records)
    summary = summarise(records)
    assert (summary.up_payload, summary.down_payload) == (20_000, 20_000)
    assert summary.rate_ok(spec)


async def test_a_receiver_that_stops_reading_blocks_the_sender(serve: Serve) -> None:
    release = asyncio.Event()

    async def stubborn(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await release.wait()

    spec = replace(FAST, rate_up_kbps=100_000, rate_down_kbps=100_000, queue_bytes=100_000)
    async with Shaper(spec, listen=LOCAL, to=await serve(stubborn)) as shaper:
        flood = socket.socket()
        flood.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
        await asyncio.to_thread(flood.connect, shaper.address)
        flood.setblocking(False)
        pushed, last_progress = 0, time.monotonic()
        while time.monotonic() - last_progress < 0.5:
            try:
                pushed += flood.send(bytes(16_384))
                last_progress = time.monotonic()
            except BlockingIOError:
                await asyncio.sleep(0.01)
        assert shaper.summary().up_payload < 8_000_000
        assert pushed < 8_000_000
        reset(flood)
        release.set()
