"""Runs a drafter on a thread of its own, so that neither commits nor frames wait for it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from acespec.edge.brain.draft_desk import DraftJob, Level
from acespec.edge.brain.hop import hop
from acespec.edge.drafters.base import Drafter, TurnContext
from acespec.edge.session import EdgeSession

HOP_S = 0.01
"""Work per visit of the thread; what is drafted within it leaves in one message."""
SLOWEST = 4.0
"""A proposal is booked with at most so many times its measured time: reading a long prompt is no part of drafting."""


class DraftWorker:
    """Feeds one drafter with the jobs of one session. Methods are called from the event loop.

    `on_drafts` is called after each visit that had a job; `on_cost` once, with the drafter's own measurement of what a
    proposal costs, if it makes one.
    """

    def __init__(
        self,
        drafter: Drafter,
        session: EdgeSession,
        on_drafts: Callable[[], None],
        on_cost: Callable[[float], None] | None = None,
    ) -> None:
        self._drafter = drafter
        self._session = session
        self._on_drafts = on_drafts
        self._on_cost = on_cost
        self._notes: deque[Callable[[], None]] = deque()  # filled by the loop, emptied by the thread
        self._wake = asyncio.Event()
        self._interrupted = False
        self._job: DraftJob | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="drafter")
        drafter.should_stop = lambda: self._interrupted

    @property
    def name(self) -> str:
        """The drafter's kind."""
        return self._drafter.name

    def begin(self, turn: TurnContext) -> None:
        """A turn starts."""
        self._note(lambda: self._drafter.begin(turn))

    def committed(self, start: int, tokens: tuple[int, ...]) -> None:
        """Tokens became final; a job that they contradict is interrupted."""
        self._note(lambda: self._drafter.commit(tokens, start))

    async def run(self) -> None:
        """Draft for ever; ends by cancellation, or with the drafter's own error."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            self._job = job = self._session.draft_job()
            if job is None and not self._notes:
                await self._wake.wait()
                continue
            self._interrupted = False
            found, seconds, silent = await loop.run_in_executor(self._thread, self._hop, job)
            self._job = None
            self._tell_cost()
            if job is not None:
                self._session.drafted(job, found, seconds=seconds, silent=silent)
                self._on_drafts()

    def wake(self) -> None:
        """Something changed: there may be work, or the work at hand may be void."""
        if self._job is not None and self._session.is_outbid(self._job):
            self._interrupted = True
        self._wake.set()

    async def close(self) -> None:
        """Let the drafter save what it learned and end its thread."""
        self._interrupted = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._hop, None)
        await loop.run_in_executor(self._thread, self._drafter.close)
        self._thread.shutdown(wait=True)

    def _tell_cost(self) -> None:
        cost = self._drafter.proposal_s
        if self._on_cost is not None and cost is not None:
            self._on_cost(cost)
            self._on_cost = None

    def _note(self, note: Callable[[], None]) -> None:
        self._notes.append(note)
        self.wake()

    def _hop(self, job: DraftJob | None) -> tuple[list[Level], float, bool]:
        # Taken here and not handed over: a visit that is cancelled before it begins must lose nothing.
        while self._notes:
            self._notes.popleft()()
        if job is None or self._interrupted:
            return [], 0.0, False
        start = time.monotonic()
        found, silent = hop(
            job, self._drafter.propose, lambda _: not self._interrupted and time.monotonic() - start <= HOP_S
        )
        return found, self._booked(time.monotonic() - start, len(found)), silent and not self._interrupted

    def _booked(self, seconds: float, proposals: int) -> float:
        usual = self._drafter.proposal_s
        return seconds if usual is None else min(seconds, SLOWEST * usual * max(1, proposals))
