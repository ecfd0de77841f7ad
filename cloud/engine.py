"""The engine backend: a table of turns and a runner, driven by one task; the model runs in a thread of its own.

While a step runs, the event loop goes on taking drafts; they join the next step.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from acespec.cloud.backend import Committed, Offer, SessionKey, TurnSpec
from acespec.cloud.runner import Block, Drawn, Runner
from acespec.cloud.status_log import StatusLog
from acespec.cloud.step import Step
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
    """Runs the turns of `table` on its runner. Use as an async context manager; all calls belong to its event loop."""

    def __init__(self, runner: Runner, table: TurnTable) -> None:
        self._runner = runner
        self._table = table
        self._status = StatusLog(self._table)
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

    @property
    def table(self) -> TurnTable:
        """The turns that run, and their pages."""
        return self._table

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
        self._table.offer(time.monotonic(), session, offer)
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
        """One step after another. What a step committed is handed out while the next one already runs."""
        flight: _Flight | None = None
        while True:
            news = await self._land(flight) if flight else []
            self._wake.clear()
            step = self._table.plan(time.monotonic())
            flight = self._launch(step) if step else None
            self._deliver(news)
            if flight is None:
                await self._sleep()
            else:
                self._table.seat(time.monotonic())

    async def _sleep(self) -> None:
        wake_at = self._table.wake_at()
        timeout = None if wake_at is None else max(0.001, wake_at - time.monotonic())
        try:
            async with asyncio.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _launch(self, step: Step) -> _Flight:
        loop = asyncio.get_running_loop()
        return _Flight(step, loop.run_in_executor(self._thread, _timed, self._runner.step, step.blocks))

    async def _land(self, flight: _Flight) -> list[tuple[SessionKey, Item]]:
        """Wait for a step's end; what its sessions are to be told."""
        try:
            drawn, seconds = await flight.result
        except (AcespecError, RuntimeError, ValueError, MemoryError) as error:
            log.exception("a verify step failed; its %d turns end", len(flight.step.parts))
            fault = ServerFault(f"the verifier failed in this turn ({error}); open it again")
            return [(session, fault) for session in self._table.fail(flight.step)]
        now = time.monotonic()
        news = self._table.complete(now, flight.step, drawn, seconds)
        self._status.stepped(now, flight.step, seconds, sum(len(item.tokens) for _, item in news))
        return [*news]

    def _deliver(self, news: list[tuple[SessionKey, Item]]) -> None:
        for session, item in news:
            queue = self._queues[session]
            if isinstance(item, Committed) and item.fault is not None:
                queue.put_nowait(replace(item, finish=None, totals=None, fault=None))
                item = ServerFault(f"the output format could not be followed to its end: {item.fault}")
            queue.put_nowait(item)
            if isinstance(item, ServerFault) or item.finish is not None:
                del self._queues[session]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step that runs, and what will come of it."""

    step: Step
    result: asyncio.Future[tuple[list[Drawn], float]]


def _timed(run: Callable[[list[Block]], list[Drawn]], blocks: list[Block]) -> tuple[list[Drawn], float]:
    began = time.monotonic()
    return run(blocks), time.monotonic() - began
