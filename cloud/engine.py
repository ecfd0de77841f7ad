"""The engine backend: a table of turns and a runner, driven by one task; the model runs in a thread of its own.

While a step runs, the event loop goes on taking drafts; they join the next step.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

from acespec.cloud.backend import Committed, Offer, SessionKey, TurnSpec
from acespec.cloud.runner import Runner
from acespec.cloud.scheduler import FreeRun, Step
from acespec.cloud.stops import TextDecoder
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.proto.errors import AcespecError, ServerFault

log = logging.getLogger(__name__)

STOPPED = "the verifier's engine has stopped because of a fault in it; its log says why: restart the verifier"

Item = Committed | ServerFault


async def _drain(queue: asyncio.Queue[Item]) -> AsyncIterator[Committed]:
    while True:
        item = await queue.get()
        if isinstance(item, ServerFault):
            raise item
        yield item
        if item.finish is not None:
            return


class EngineBackend:
    """Runs turns on a `Runner`. Use as an async context manager; all calls belong to its event loop.

    `decoder` makes a fresh token-to-text decoder for a turn that has stop strings.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        limits: Limits,
        decoder: Callable[[], TextDecoder],
        free_run: FreeRun = FreeRun.IDLE,
        max_rows: int = 64,
        max_sessions: int = 64,
    ) -> None:
        self._runner = runner
        self._table = TurnTable(
            runner, limits=limits, decoder=decoder, free_run=free_run, max_rows=max_rows, max_sessions=max_sessions
        )
        self._queues: dict[SessionKey, asyncio.Queue[Item]] = {}
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="acespec-engine")
        self._pump: asyncio.Task[None] | None = None

    async def __aenter__(self) -> EngineBackend:
        self._pump = asyncio.create_task(self._run(), name="acespec-engine")
        self._pump.add_done_callback(self._stopped)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown)
        self._table.sweep()

    @property
    def sessions(self) -> int:
        """Sessions that hold KV."""
        return self._table.sessions

    def open(self, spec: TurnSpec) -> AsyncIterator[Committed]:
        """See `Backend.open`."""
        if self._pump is None or self._pump.done():
            raise ServerFault(STOPPED)
        self.close(spec.session)
        self._table.open(time.monotonic(), spec)
        queue = self._queues[spec.session] = asyncio.Queue()
        self._wake.set()
        return _drain(queue)

    def offer(self, session: SessionKey, offer: Offer) -> None:
        """See `Backend.offer`."""
        self._table.offer(session, offer)
        self._wake.set()

    def attach(self, session: SessionKey, attached: bool) -> None:
        """See `Backend.attach`."""
        self._table.attach(session, attached)
        self._wake.set()

    def close(self, session: SessionKey) -> None:
        """See `Backend.close`."""
        if last := self._table.close(session):
            self._queues.pop(session).put_nowait(last)

    def forget(self, session: SessionKey) -> None:
        """See `Backend.forget`."""
        self.close(session)
        self._table.forget(session)
        self._wake.set()

    def _stopped(self, pump: asyncio.Task[None]) -> None:
        """A fault outside the model has ended the engine: say so to everyone who waits."""
        if pump.cancelled() or (error := pump.exception()) is None:
            return
        log.critical(STOPPED, exc_info=error)
        for queue in self._queues.values():
            queue.put_nowait(ServerFault(STOPPED))

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            step = self._table.plan(time.monotonic())
            if step is None:
                await self._sleep()
            else:
                await self._execute(step)

    async def _sleep(self) -> None:
        wake_at = self._table.wake_at()
        timeout = None if wake_at is None else max(0.001, wake_at - time.monotonic())
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _execute(self, step: Step) -> None:
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        try:
            samples = await loop.run_in_executor(self._thread, self._runner.step, step.blocks)
        except (AcespecError, RuntimeError, ValueError, MemoryError) as error:
            log.exception("a verify step failed; its %d turns end", len(step.parts))
            self._fail(step, error)
            return
        now = time.monotonic()
        for session, committed in self._table.complete(now, step, samples, now - began):
            self._queues[session].put_nowait(committed)
            if committed.finish is not None:
                del self._queues[session]

    def _fail(self, step: Step, error: Exception) -> None:
        for session in self._table.fail(step):
            fault = ServerFault(f"the verifier failed in this turn ({error}); open it again")
            self._queues.pop(session).put_nowait(fault)
