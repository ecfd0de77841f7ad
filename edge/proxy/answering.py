"""Brings a generation to the HTTP client: in one piece, or as events while it grows."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from acespec.edge.completion import Completion, TextDelta
from acespec.edge.proxy.errors import api_error, json_response
from acespec.edge.proxy.event_stream import DONE, EventStream, comment, data, while_there
from acespec.edge.proxy.generation import Generation, Piece
from acespec.edge.proxy.reply import Reply
from acespec.edge.proxy.service import Service
from acespec.edge.report import Json
from acespec.proto.errors import AcespecError

BEAT_S = 1.0
"""Between looks at a silent turn."""
SILENCE_S = 15.0
"""After so long without a word the client hears that we are still there."""
FIRST_S = 5.0
"""A refusal of the verifier that comes within this time still has its HTTP status; later it is an event."""


async def in_one_piece(service: Service, generation: Generation, reply: Reply, request: Request) -> Response:
    """The whole reply; a client that leaves ends the turns.

    Raises:
        AcespecError: one of the turns failed.
        ClientGone: nobody waits any more.
    """
    try:
        return json_response(reply.whole(await while_there(generation.all(), request.receive)))
    finally:
        await service.end(generation)


async def as_events(
    service: Service, generation: Generation, reply: Reply, request: Request, answers: int, include_usage: bool
) -> ASGIApp:
    """A stream of chunks; waits a moment, so that a refusal is an error and no stream.

    Raises:
        AcespecError: one of the turns failed at once.
        ClientGone: nobody waits any more.
    """
    try:
        first = await while_there(generation.next(FIRST_S), request.receive)
    except TimeoutError:
        first = None
    except BaseException:
        await service.end(generation)
        raise
    return EventStream(_events(service, generation, reply, first, answers, include_usage))


async def _events(
    service: Service, generation: Generation, reply: Reply, first: Piece | None, answers: int, include_usage: bool
) -> AsyncGenerator[bytes, None]:
    done: list[Completion] = []
    try:
        for index in range(answers):
            if (opening := reply.opening(index)) is not None:
                yield data(reply.chunk(opening))
        if first is not None and (chunk := _chunk(reply, first, done, answers)) is not None:
            yield data(chunk)
        async for event in _rest(generation, reply, done, answers):
            yield event
        if include_usage:
            yield data(reply.chunk(None) | {"usage": reply.usage(done)})
        yield DONE
    except AcespecError as fault:
        yield data(api_error(fault).as_json())
    finally:
        await service.end(generation)


async def _rest(
    generation: Generation, reply: Reply, done: list[Completion], answers: int
) -> AsyncGenerator[bytes, None]:
    spoke = time.monotonic()
    while len(done) < answers:
        try:
            piece = await generation.next(BEAT_S)
        except TimeoutError:
            if (words := _still_here(generation, time.monotonic() - spoke)) is not None:
                spoke = time.monotonic()
                yield comment(words)
            continue
        if piece is None:
            return
        if (chunk := _chunk(reply, piece, done, answers)) is not None:
            spoke = time.monotonic()
            yield data(chunk)


def _chunk(reply: Reply, piece: Piece, done: list[Completion], answers: int) -> dict[str, Json] | None:
    """What the piece adds to the stream; the figures ride on the last choice's last chunk."""
    item = piece.item
    if isinstance(item, TextDelta):
        if not item.text and not item.logprobs:
            return None
        # By these the page at `/` knows which view of `/acespec/live` belongs here, and where its guess begins.
        place: dict[str, Json] = {"session": piece.session, "tokens": piece.tokens}
        return reply.chunk(reply.delta(piece.index, item)) | {"acespec": place}
    done.append(item)
    ending = reply.chunk(reply.ending(piece.index, item.finish.openai))
    return ending | reply.figures(done) if len(done) == answers else ending


def _still_here(generation: Generation, silent_s: float) -> str | None:
    """What to say to a client that has heard nothing."""
    since = generation.waiting_since
    if since is not None:
        seconds = time.monotonic() - since
        clock = datetime.fromtimestamp(time.time() - seconds).strftime("%H:%M:%S")
        return f"waiting for the link since {clock} ({seconds:.0f} s)"
    if silent_s < SILENCE_S:
        return None
    return "waiting for a free session" if generation.queued else "still generating"
