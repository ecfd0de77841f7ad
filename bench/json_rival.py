"""The usual way to a model: each turn sends the whole conversation as JSON, over HTTP/1.1 with keep-alive.

A server that streams known answers token by token, and a client. Both are lean, to the rival's advantage: compact JSON
that escapes nothing it need not, the headers and fields that clients rely on and no others, one connection for all
turns, no TLS.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

Message = dict[str, str]

MODEL = "target"
KEY = "sk-0123456789abcdefghijklmnopqrstuvwxyz"
END = b"\r\n\r\n"
LAST_EVENT = b"data: [DONE]\n\n"
GOODBYE_S = 2.0
"""How long the end of a connection may be under way."""


class JsonClient:
    """One connection, opened with the first question.

    `packed`: bodies are compressed with gzip, which few servers of this kind accept.
    """

    def __init__(self, address: str, *, packed: bool) -> None:
        self._address = address
        self._packed = packed
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, messages: Sequence[Message]) -> str:
        """The answer to a conversation whose last message is the question."""
        if self._connection is None:
            host, _, port = self._address.rpartition(":")
            self._connection = await asyncio.open_connection(host, int(port))
        reader, writer = self._connection
        writer.write(request_bytes(messages, self._address, packed=self._packed))
        await writer.drain()
        await reader.readuntil(END)
        text = ""
        while (event := await _chunk(reader)) != LAST_EVENT:
            text += json.loads(event.removeprefix(b"data: "))["choices"][0]["delta"].get("content", "")
        await _chunk(reader)  # The empty one, which ends the body.
        return text

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection[1].close()
            await self._connection[1].wait_closed()


def request_bytes(messages: Sequence[Message], host: str, *, packed: bool) -> bytes:
    """A chat request, headers included."""
    body = _json({"model": MODEL, "messages": list(messages), "stream": True})
    encoding = ""
    if packed:
        body, encoding = gzip.compress(body, 9, mtime=0), "Content-Encoding: gzip\r\n"
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\n{encoding}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class JsonServer:
    """Answers the n-th question of a conversation with the n-th text, given in tokens of `step_s` seconds each.

    `on_request` hears of each request that is whole.
    """

    def __init__(self, answers: Sequence[Sequence[str]], step_s: float, on_request: Callable[[], None]) -> None:
        self._answers = answers
        self._step_s = step_s
        self._on_request = on_request
        self._connections: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[None]:
        """Listen on a port of loopback until the context ends."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        try:
            yield
        finally:
            server.close()
            if self._connections:
                await asyncio.wait(self._connections, timeout=GOODBYE_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self._connections.add(task)
        try:
            while True:
                head, body = await _read(reader)
                self._on_request()
                text = gzip.decompress(body) if b"Content-Encoding: gzip" in head else body
                await self._answer(writer, json.loads(text)["messages"])
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # The client has left.
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, messages: Sequence[Message]) -> None:
        number = sum(message["role"] == "user" for message in messages) - 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for token in self._answers[number]:
            await asyncio.sleep(self._step_s)
            writer.write(_chunked(_event({"content": token}, None)))
            await writer.drain()
        writer.write(_chunked(_event({}, "stop")) + _chunked(LAST_EVENT) + _chunked(b""))
        await writer.drain()


def _event(delta: dict[str, str], finish: str | None) -> bytes:
    """One event of the stream, with the fields that OpenAI's client expects."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": MODEL}
    return b"data: " + _json(head | {"choices": [choice]}) + b"\n\n"


def _chunked(data: bytes) -> bytes:
    """A chunk of an HTTP/1.1 body (RFC 9112, section 7.1); an empty one ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    length = int(await reader.readuntil(b"\r\n"), 16)
    return (await reader.readexactly(length + 2))[:-2]


async def _read(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of a request. Raises IncompleteReadError at the end of the connection."""
    head = await reader.readuntil(END)
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head, await reader.readexactly(int(lengths[0].split(b":")[1]))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
