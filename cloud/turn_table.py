"""The turns that run on one model: their KV slots, the scheduler, and what each step commits (sans-IO).

`EngineBackend` drives it with threads and queues; a simulation drives the same object in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acespec.cloud.acceptance import Acceptance, CostCurve
from acespec.cloud.backend import Committed, Offer, SessionKey, TurnSpec
from acespec.cloud.kv_slots import KvSlots
from acespec.cloud.runner import Runner
from acespec.cloud.scheduler import FreeRun, Scheduler, Step
from acespec.cloud.stops import StopRule, TextDecoder
from acespec.cloud.turn import Limits, Turn


class TurnTable:
    """Running turns by session. `now` is in seconds of one monotonic clock.

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
        self._limits = limits
        self._decoder = decoder
        self._scheduler = Scheduler(CostCurve(runner.cost_curve()), free_run=free_run, max_rows=max_rows)
        self._slots = KvSlots(runner, max_sessions)
        self._acceptances: dict[SessionKey, Acceptance] = {}
        self._turns: dict[SessionKey, Turn] = {}

    @property
    def sessions(self) -> int:
        """Sessions that hold KV."""
        return len(self._slots)

    @property
    def turns(self) -> list[Turn]:
        """The turns that run."""
        return list(self._turns.values())

    def open(self, now: float, spec: TurnSpec) -> None:
        """Start the session's turn; the one that ran before must have been closed.

        Raises:
            Exhausted: every KV slot serves a running turn.
        """
        text = self._decoder() if spec.stop_strings else None
        stops = StopRule(spec.stop_ids, spec.stop_strings, spec.max_tokens, text)
        for token in spec.tokens[spec.prompt_len :]:
            stops.push(token)
        slot, cached = self._slots.take(spec.session, spec.tokens)
        acceptance = self._acceptances.setdefault(spec.session, Acceptance(self._limits.max_draft))
        turn = Turn(spec, slot, cached, stops, self._limits, acceptance, now)
        self._turns[spec.session] = turn
        self._scheduler.add(turn)

    def offer(self, session: SessionKey, offer: Offer) -> None:
        """See `Backend.offer`."""
        if turn := self._turns.get(session):
            turn.offer(offer)

    def attach(self, session: SessionKey, attached: bool) -> None:
        """See `Backend.attach`."""
        if turn := self._turns.get(session):
            turn.attached = attached

    def close(self, session: SessionKey) -> Committed | None:
        """End the session's turn; its final word, if one ran."""
        turn = self._turns.get(session)
        if turn is None:
            return None
        last = turn.cancelled()
        self._end(turn)
        return last

    def forget(self, session: SessionKey) -> None:
        """Free all that is kept for a session whose turn was closed."""
        self._slots.forget(session)
        self._acceptances.pop(session, None)

    def plan(self, now: float) -> Step | None:
        """The next step, or None if no turn should step now. Call it between steps only."""
        self.sweep()
        return self._scheduler.plan(now)

    def wake_at(self) -> float | None:
        """When `plan` could have a step by the passing of time alone."""
        return self._scheduler.wake_at()

    def complete(
        self, now: float, step: Step, samples: Sequence[tuple[int, ...]], seconds: float
    ) -> list[tuple[SessionKey, Committed]]:
        """Give a finished step's samples to its turns; what they committed."""
        done = self._scheduler.complete(step, samples, seconds, now)
        for turn, committed in done:
            if committed.finish is not None:
                self._end(turn)
        return [(turn.spec.session, committed) for turn, committed in done]

    def fail(self, step: Step) -> list[SessionKey]:
        """A step broke: end the turns that took part in it; their sessions."""
        broken = [part.turn for part in step.parts if self._turns.get(part.turn.spec.session) is part.turn]
        for turn in broken:
            self._end(turn)
        return [turn.spec.session for turn in broken]

    def sweep(self) -> None:
        """Free the slots of forgotten sessions. Only between steps."""
        self._slots.sweep()

    def _end(self, turn: Turn) -> None:
        self._scheduler.remove(turn)
        self._turns.pop(turn.spec.session, None)
        self._slots.put_back(turn.spec.session, turn.tokens[: turn.cached])
