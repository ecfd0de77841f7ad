"""n answers to one prompt: n sessions at once, of which only the first sends the prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.turn_request import TurnRequest
from acespec.proto.errors import AcespecError, UsageError
from acespec.proto.seeds import choice_seed


async def choices(
    make_client: Callable[[], Client], ids: Sequence[int], request: TurnRequest, n: int, *, text: str | None = None
) -> list[Completion]:
    """`n` answers, in order; answer i is that of a request with `choice_seed(request.seed, i)`.

    Args:
        make_client: a new client; it is closed here.
        text: what `ids` were encoded from, if they were.

    Raises:
        UsageError: `n` is below 1.
        ProtocolError: one of the turns failed; the others are cancelled.
    """
    if n < 1:
        raise UsageError(f"n = {n}: ask for at least one answer")
    requests = [replace(request, seed=choice_seed(request.seed, i)) for i in range(n)]
    prompt_is_there = asyncio.Event()

    async def first() -> Completion:
        async with make_client() as client:
            hint = asyncio.create_task(_pass_on(client.opened, prompt_is_there))
            try:
                return await _complete(client, ids, requests[0], text, 0)
            finally:
                hint.cancel()

    async def other(its: TurnRequest) -> Completion:
        await prompt_is_there.wait()
        async with make_client() as client:
            return await _complete(client, ids, its, text, len(ids))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(first()), *(group.create_task(other(its)) for its in requests[1:])]
    except* AcespecError as faults:
        raise faults.exceptions[0] from None
    return [task.result() for task in tasks]


async def _complete(
    client: Client, ids: Sequence[int], request: TurnRequest, text: str | None, shared: int
) -> Completion:
    async with aclosing(client.stream(ids, request, text=text, shared=shared)) as parts:
        async for part in parts:
            if isinstance(part, Completion):
                return part
    raise RuntimeError("a stream ended without its completion")


async def _pass_on(heard: asyncio.Event, told: asyncio.Event) -> None:
    await heard.wait()
    told.set()
