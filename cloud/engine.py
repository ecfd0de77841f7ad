"""The engine backend: a scheduler and a runner, driven by one task; the model runs in a thread of its own.

While a step runs, the event loop goes on taking drafts; they join the next step.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

from acespec.cloud.acceptance import Acceptance, CostCurve
from acespec.cloud.backend import Committed, Offer, SessionKey, TurnSpec
from acespec.cloud.kv_slots import KvSlots
from acespec.cloud.runner import Runner
from acespec.cloud.scheduler import FreeRun, Scheduler, Step
from acespec.cloud.stops import StopRule, TextDecoder
from acespec.cloud.turn import Limits, Turn
from acespec.proto.errors import AcespecError, ServerFault

log = logging.getLogger(__name__)

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
        self._limits = limits
        self._decoder = decoder
        self._scheduler = Scheduler(CostCurve(runner.cost_curve()), free_run=free_run, max_rows=max_rows)
        self._slots = KvSlots(runner, max_sessions)
        self._acceptances: dict[SessionKey, Acceptance] = {}
        self._turns: dict[SessionKey, tuple[Turn, asyncio.Queue[Item]]] = {}
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="acespec-engine")
        self._pump: asyncio.Task[None] | None = None

    async def __aenter__(self) -> EngineBackend:
        self._pump = asyncio.create_task(self._run(), name="acespec-engine")
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown)
        self._slots.sweep()

    @property
    def sessions(self) -> int:
        """Sessions that hold KV."""
        return len(self._slots)

    def open(self, spec: TurnSpec) -> AsyncIterator[Committed]:
        """See `Backend.open`."""
        self.close(spec.session)
        queue: asyncio.Queue[Item] = asyncio.Queue()
        self._turns[spec.session] = self._begin(spec), queue
        self._wake.set()
        return _drain(queue)

    def offer(self, session: SessionKey, offer: Offer) -> None:
        """See `Backend.offer`."""
        if entry := self._turns.get(session):
            entry[0].offer(offer)
            self._wake.set()

    def attach(self, session: SessionKey, attached: bool) -> None:
        """See `Backend.attach`."""
        if entry := self._turns.get(session):
            entry[0].attached = attached
            self._wake.set()

    def close(self, session: SessionKey) -> None:
        """See `Backend.close`."""
        if entry := self._turns.get(session):
            turn, queue = entry
            queue.put_nowait(turn.cancelled())
            self._end(turn)

    def forget(self, session: SessionKey) -> None:
        """See `Backend.forget`."""
        self.close(session)
        self._slots.forget(session)
        self._acceptances.pop(session, None)
        self._wake.set()

    def _begin(self, spec: TurnSpec) -> Turn:
        text = self._decoder() if spec.stop_strings else None
        stops = StopRule(spec.stop_ids, spec.stop_strings, spec.max_tokens, text)
        for token in spec.tokens[spec.prompt_len :]:
            stops.push(token)
        slot, cached = self._slots.take(spec.session, spec.tokens)
        acceptance = self._acceptances.setdefault(spec.session, Acceptance(self._limits.max_draft))
        turn = Turn(spec, slot, cached, stops, self._limits, acceptance, time.monotonic())
        self._scheduler.add(turn)
        return turn

    def _end(self, turn: Turn) -> None:
        self._scheduler.remove(turn)
        self._turns.pop(turn.spec.session, None)
        self._slots.put_back(turn.spec.session, turn.tokens[: turn.cached])

    async def _run(self) -> None:
        while True:
            self._slots.sweep()
            self._wake.clear()
            step = self._scheduler.plan(time.monotonic())
            if step is None:
                await self._sleep()
            else:
                await self._execute(step)

    async def _sleep(self) -> None:
        wake_at = self._scheduler.wake_at()
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
        for turn, committed in self._scheduler.complete(step, samples, now - began, now):
            _, queue = self._turns[turn.spec.session]
            queue.put_nowait(committed)
            if committed.finish is not None:
                self._end(turn)

    def _fail(self, step: Step, error: Exception) -> None:
        for part in step.parts:
            entry = self._turns.get(part.turn.spec.session)
            if entry is not None and entry[0] is part.turn:
                entry[1].put_nowait(ServerFault(f"the verifier failed in this turn ({error}); open it again"))
                self._end(part.turn)
