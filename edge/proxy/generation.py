"""The answers to one request under way: a task for each, on sessions of the pool, and what they bring in one queue.

The tasks are nobody's children: an HTTP client that goes away ends them by `close`, which gives each turn the time to
tell the verifier.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from acespec.edge.client import Client
from acespec.edge.completion import Completion, TextDelta
from acespec.edge.proxy.metrics import Metrics
from acespec.edge.proxy.pool import ClientPool, Lent
from acespec.edge.turn_request import TurnRequest
from acespec.proto.errors import AcespecError, Exhausted, InvalidRequest, Unavailable
from acespec.proto.seeds import choice_seed

log = logging.getLogger(__name__)

AGAIN_S = 1.0
"""Between attempts to begin a turn while the verifier cannot be reached."""


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt and what is asked about it; answer i of `n` has the seed that follows from the first."""

    ids: Sequence[int]
    text: str | None
    turn: TurnRequest
    n: int = 1
    draft_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Something of answer `index`, with which it has `tokens` tokens, from the session with this id."""

    index: int
    item: TextDelta | Completion
    session: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a job's answer. `done` is None if the turn was left early or failed."""

    job: Job
    token_ids: tuple[int, ...]
    text: str
    done: Completion | None


class Generation:
    """Answers are numbered through all jobs: those of the first job come first.

    Args:
        patience_s: how long a turn that cannot begin is tried again; 0 tells an outage at once.
        on_end: told of each answer that had begun, however it ended.
    """

    def __init__(
        self,
        pool: ClientPool,
        jobs: Sequence[Job],
        *,
        patience_s: float,
        metrics: Metrics,
        on_end: Callable[[Ended], None],
    ) -> None:
        self._pool = pool
        self._patience_s = patience_s
        self._metrics = metrics
        self._on_end = on_end
        self._started = time.monotonic()
        self._found: asyncio.Queue[Piece | BaseException] = asyncio.Queue()
        self._clients: dict[int, Client] = {}
        self._down_since: dict[int, float] = {}
        self._tasks = self._begin(jobs)
        self._left = len(self._tasks)

    @property
    def waiting_since(self) -> float | None:
        """Since when the link is down, if it is (`time.monotonic`)."""
        seen = (client.view().waiting_since for client in self._clients.values())
        times = [since for since in (*seen, *self._down_since.values()) if since is not None]
        return min(times, default=None)

    @property
    def queued(self) -> bool:
        """No answer has a session yet."""
        return not self._clients

    async def next(self, within: float | None = None) -> Piece | None:
        """What comes next; None once all answers are complete.

        Raises:
            TimeoutError: nothing came `within` so many seconds.
            AcespecError: one of the turns failed.
        """
        if not self._left and self._found.empty():
            return None
        async with asyncio.timeout(within):
            found = await self._found.get()
        if isinstance(found, BaseException):
            raise found
        if isinstance(found.item, Completion):
            self._left -= 1
        return found

    async def all(self) -> list[Completion]:
        """The complete answers, in order.

        Raises:
            AcespecError: one of the turns failed.
        """
        done: dict[int, Completion] = {}
        while (piece := await self.next()) is not None:
            if isinstance(piece.item, Completion):
                done[piece.index] = piece.item
        return [done[index] for index in sorted(done)]

    def abort(self, fault: AcespecError) -> None:
        """Let whoever reads see `fault` next."""
        self._found.put_nowait(fault)

    async def close(self) -> None:
        """End what still runs, here and at the verifier."""
        for task in self._tasks:
            task.cancel()
        # Shielded: whoever waits may be cancelled again, and the turns still have to tell the verifier.
        await asyncio.shield(asyncio.gather(*self._tasks, return_exceptions=True))

    def _begin(self, jobs: Sequence[Job]) -> list[asyncio.Task[None]]:
        tasks: list[asyncio.Task[None]] = []
        for job in jobs:
            first_opened = asyncio.Event()
            for number in range(job.n):
                turn = replace(job.turn, seed=choice_seed(job.turn.seed, number))
                its = replace(job, turn=turn)
                task = asyncio.create_task(self._run(len(tasks), its, number, first_opened))
                task.add_done_callback(self._tell_of_fault)
                tasks.append(task)
        return tasks

    def _tell_of_fault(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._found.put_nowait(fault)

    async def _run(self, index: int, job: Job, number: int, first_opened: asyncio.Event) -> None:
        """The first answer to a prompt sends it up; the others wait until it is there."""
        try:
            if number:
                await first_opened.wait()
            async with self._pool.lend(job.ids, job.draft_tokens) as lent:
                self._clients[index] = lent.client
                try:
                    await self._turn(index, job, lent, first_opened)
                finally:
                    del self._clients[index]
        finally:
            if number == 0:
                first_opened.set()

    async def _turn(self, index: int, job: Job, lent: Lent, first_opened: asyncio.Event) -> None:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                await self._attempt(index, job, lent, first_opened)
                return
            except Unavailable as fault:
                if lent.client.opened.is_set():
                    self._metrics.resumes.labels("failed").inc()
                    raise
                if time.monotonic() >= deadline:
                    raise
                self._down_since.setdefault(index, time.monotonic())
                log.info("%s; trying again", fault)
                await asyncio.sleep(AGAIN_S * random.uniform(0.8, 1.2))
            except (Exhausted, InvalidRequest):
                raise
            except AcespecError:
                await self._pool.drop(lent.client)
                raise

    async def _attempt(self, index: int, job: Job, lent: Lent, first_opened: asyncio.Event) -> None:
        answer = _Answer()
        parts = lent.client.stream(job.ids, job.turn, text=job.text, shared=lent.shared)
        try:
            async with aclosing(parts):
                async for part in parts:
                    first_opened.set()
                    self._down_since.pop(index, None)
                    if isinstance(part, Completion):
                        answer.done = part
                        self._metrics.completed(part, time.monotonic() - self._started)
                    else:
                        self._metrics.tokens(len(part.token_ids), answer.since(self._started), len(job.ids))
                        answer.add(part)
                    self._found.put_nowait(
                        Piece(index, part, lent.client.session.session_id.hex(), len(answer.token_ids))
                    )
        finally:
            if answer.token_ids:
                self._on_end(Ended(job, tuple(answer.token_ids), "".join(answer.pieces), answer.done))


class _Answer:
    """One answer as it grows."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.pieces: list[str] = []
        self.done: Completion | None = None
        self._last: float | None = None

    def since(self, started: float) -> tuple[float, bool]:
        """Seconds since the tokens before, or since the request `started`; True for the first ones."""
        now, last = time.monotonic(), self._last
        self._last = now
        return (now - started, True) if last is None else (now - last, False)

    def add(self, part: TextDelta) -> None:
        """Tokens are final."""
        self.token_ids += part.token_ids
        self.pieces.append(part.text)
