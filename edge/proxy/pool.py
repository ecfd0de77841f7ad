"""Sessions with one verifier for any number of requests: one connection, one link budget, as many sessions as allowed.

A request gets the idle session that holds most of what it asks about, if it goes on from there; else a new session,
while there may be one; else the idle one that was used longest ago. Nobody overtakes anybody in the queue.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from acespec.edge.client import Client
from acespec.edge.proxy.errors import ApiError
from acespec.edge.view import View
from acespec.proto.prefix import common_prefix

log = logging.getLogger(__name__)

MakeClient = Callable[[int | None], Client]
"""Makes a client, not yet entered, whose drafts are at most so many tokens long (None: as the proxy was told)."""


@dataclass(eq=False, slots=True)
class _Seat:
    """A session, and who may use it."""

    client: Client
    draft_tokens: int | None
    busy: bool = True
    used: int = 0

    @property
    def there(self) -> bool:
        """The verifier holds its sequence."""
        return self.client.opened.is_set()


@dataclass(frozen=True, slots=True)
class Lent:
    """A session for one turn. The first `shared` ids of the turn are at the verifier, by another session."""

    client: Client
    shared: int


class ClientPool:
    """Lends sessions.

    Args:
        make_client: runs in a thread of its own, for it may load much.
        max_sessions: at once.
        max_waiting: requests that may wait for one; further ones are refused.

    Attributes:
        on_return: told of each client that comes back from a turn.
        closing: set when the end has begun: whoever streams without end should end.
    """

    def __init__(self, make_client: MakeClient, *, max_sessions: int = 4, max_waiting: int = 64) -> None:
        self.closing = asyncio.Event()
        self.max_sessions = max_sessions
        self.on_return: Callable[[Client], None] = lambda _: None
        self._make_client = make_client
        self._max_waiting = max_waiting
        self._free = asyncio.Semaphore(max_sessions)
        self._waiting = 0
        self._creating = 0
        self._seats: list[_Seat] = []
        self._clock = itertools.count(1)
        self._endings: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """Sessions that are lent now."""
        return sum(seat.busy for seat in self._seats)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self._waiting

    @property
    def sessions(self) -> int:
        """All sessions, idle ones included."""
        return len(self._seats)

    def clients(self) -> list[Client]:
        """One a session."""
        return [seat.client for seat in self._seats]

    def views(self) -> list[tuple[str, View]]:
        """What may be shown of each session, by its id in hex; idle ones included."""
        return [(seat.client.session.session_id.hex(), seat.client.view()) for seat in self._seats]

    @asynccontextmanager
    async def lend(self, ids: Sequence[int], draft_tokens: int | None = None) -> AsyncIterator[Lent]:
        """A session for a turn over `ids`; waits until one is free.

        Raises:
            ApiError: the queue is full, or the proxy shuts down.
            AcespecError: the draft model cannot be had.
        """
        await self._turn_comes()
        try:
            seat, shared = await self._seat_for(ids, draft_tokens)
            try:
                yield Lent(seat.client, shared)
            finally:
                self.on_return(seat.client)
                seat.busy, seat.used = False, next(self._clock)
        finally:
            self._free.release()

    async def drop(self, client: Client) -> None:
        """`client` is not to be trusted any more: its session ends here."""
        for seat in self._seats:
            if seat.client is client:
                self._seats.remove(seat)
                await self._end(client)
                return

    async def close(self) -> None:
        """End all sessions. Whoever uses one should have been told before."""
        self.closing.set()
        seats, self._seats = self._seats, []
        await asyncio.gather(*(self._end(seat.client) for seat in seats), *self._endings)

    async def _turn_comes(self) -> None:
        if self.closing.is_set():
            raise shutting_down()
        if self._free.locked() and self._waiting >= self._max_waiting:
            raise ApiError(
                f"all {self.max_sessions} sessions are busy and {self._waiting} requests wait: try again later, or "
                "start the proxy with a larger --max-sessions or --max-waiting",
                status=429,
                kind="rate_limit_error",
                code="queue_full",
                retry_after=1.0,
            )
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1

    async def _seat_for(self, ids: Sequence[int], draft_tokens: int | None) -> tuple[_Seat, int]:
        agreeing = {seat: common_prefix(seat.client.session.ids, ids) for seat in self._seats if seat.there}
        shared = max(agreeing.values(), default=0)
        seat = self._chosen(agreeing, draft_tokens)
        if seat is not None:
            seat.busy = True
            return seat, shared
        return await self._new(draft_tokens), shared

    def _chosen(self, agreeing: dict[_Seat, int], draft_tokens: int | None) -> _Seat | None:
        """An idle session to go on with; None: make one."""
        idle = [seat for seat in self._seats if not seat.busy and seat.draft_tokens == draft_tokens]
        going_on = [seat for seat in idle if agreeing.get(seat, 0) >= max(1, seat.client.session.prompt_len)]
        if going_on:
            return max(going_on, key=lambda seat: agreeing[seat])
        if len(self._seats) + self._creating < self.max_sessions or not idle:
            return None
        return min(idle, key=lambda seat: seat.used)

    async def _new(self, draft_tokens: int | None) -> _Seat:
        if len(self._seats) + self._creating >= self.max_sessions:
            oldest = min((seat for seat in self._seats if not seat.busy), key=lambda seat: seat.used)
            self._seats.remove(oldest)
            ending = asyncio.create_task(self._end(oldest.client))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)
        self._creating += 1
        try:
            client = await asyncio.to_thread(self._make_client, draft_tokens)
            await client.__aenter__()
        finally:
            self._creating -= 1
        seat = _Seat(client, draft_tokens)
        self._seats.append(seat)
        return seat

    async def _end(self, client: Client) -> None:
        await client.__aexit__(None, None, None)


def shutting_down() -> ApiError:
    """What requests are told at the end."""
    return ApiError(
        "the proxy is shutting down", status=503, kind="unavailable_error", code="shutting_down", retry_after=2.0
    )
