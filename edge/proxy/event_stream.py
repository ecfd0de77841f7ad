"""Server-sent events that end when the client does: a stream whose reader goes away is closed at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import TypeVar

from starlette.types import Receive, Scope, Send

from acespec.edge.report import Json

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
DONE = b"data: [DONE]\n\n"

T = TypeVar("T")


class ClientGone(Exception):
    """The HTTP client has left; nobody reads an answer."""


def data(body: dict[str, Json]) -> bytes:
    """An event."""
    return b"data: " + json.dumps(body, ensure_ascii=False).encode("utf-8", errors="replace") + b"\n\n"


def comment(text: str) -> bytes:
    """A line that readers skip, and that keeps them waiting."""
    return f": {text}\n\n".encode()


class EventStream:
    """An ASGI answer of events; `events` is closed when it ends, however it ends."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        try:
            await while_there(self._send_all(send), receive)
        except ClientGone:
            return

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
        async with aclosing(self._events) as events:
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def while_there(work: Awaitable[T], receive: Receive) -> T:
    """What `work` gives; it is cancelled if the client leaves first.

    Raises:
        ClientGone: it did.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.create_task(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
