"""The turns that run on one model: KV pages, the scheduler, and what each step commits (sans-IO).

`EngineBackend` drives it with threads and queues; a simulation drives the same object in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from acespec.cloud.acceptance import Acceptance
from acespec.cloud.backend import Committed, Offer, SessionKey, TurnSpec
from acespec.cloud.kv_pages import KvPages
from acespec.cloud.residency import QUANTUM_S, Residency
from acespec.cloud.runner import Drawn, Runner, longest_sequence
from acespec.cloud.scheduler import FIRST_TOKEN_S, FreeRun, Scheduler
from acespec.cloud.step import Step
from acespec.cloud.step_cost import StepCost
from acespec.cloud.stops import StopRule, TextDecoder
from acespec.cloud.turn import Limits, Turn
from acespec.proto.timing_profile import TimingProfile


class TurnTable:
    """Running turns by session. `now` is in seconds of one monotonic clock.

    Args:
        decoder: makes a fresh token-to-text decoder for a turn that has stop strings.
        timing: what steps take, if something better is known than the runner's own word.
        share_prefixes: let principals profit from each other's prompts (and find out, by timing, that somebody used
            them).
        quantum_s: how long a turn keeps its KV pages while others wait for theirs.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        limits: Limits,
        decoder: Callable[[], TextDecoder],
        free_run: FreeRun = FreeRun.IDLE,
        max_rows: int = 64,
        timing: TimingProfile | None = None,
        first_token_s: float = FIRST_TOKEN_S,
        share_prefixes: bool = False,
        quantum_s: float = QUANTUM_S,
    ) -> None:
        # A sequence that has the memory for itself must fit.
        self._limits = replace(limits, max_length=min(limits.max_length, longest_sequence(runner)))
        self._decoder = decoder
        self.pages = KvPages(runner.pages)
        self.residency = Residency(self.pages, quantum_s, shared=share_prefixes)
        self.scheduler = Scheduler(
            StepCost(timing or runner.timing()),
            self.residency,
            free_run=free_run,
            max_rows=max_rows,
            first_token_s=first_token_s,
        )
        self._acceptances: dict[SessionKey, Acceptance] = {}
        self._turns: dict[SessionKey, Turn] = {}

    @property
    def turns(self) -> list[Turn]:
        """The turns that run."""
        return list(self._turns.values())

    def open(self, now: float, spec: TurnSpec) -> None:
        """Start the session's turn; the one that ran before must have been closed."""
        text = self._decoder() if spec.stop_strings else None
        stops = StopRule(spec.stop_ids, spec.stop_strings, spec.max_tokens, text, min_tokens=spec.min_tokens)
        for token in spec.tokens[spec.prompt_len :]:
            stops.push(token)
        acceptance = self._acceptances.setdefault(spec.session, Acceptance(self._limits.max_draft))
        turn = self._turns[spec.session] = Turn(spec, stops, self._limits, acceptance, now)
        self.scheduler.add(turn)

    def offer(self, now: float, session: SessionKey, offer: Offer) -> None:
        """See `Backend.offer`."""
        if turn := self._turns.get(session):
            turn.offer(now, offer)

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
        """A session whose turn was closed will not come back. What the prefix cache keeps of it goes when others need
        the pages."""
        self._acceptances.pop(session, None)

    def seat(self, now: float) -> None:
        """Give KV pages to turns that wait for them; also while a step runs."""
        self.scheduler.seat(now)

    def plan(self, now: float) -> Step | None:
        """The next step, or None if no turn should step now. Call it between steps only."""
        return self.scheduler.plan(now)

    def wake_at(self) -> float | None:
        """When `plan` could have a step by the passing of time alone."""
        return self.scheduler.wake_at()

    def complete(
        self, now: float, step: Step, drawn: Sequence[Drawn], seconds: float
    ) -> list[tuple[SessionKey, Committed]]:
        """Give what a finished step drew to its turns; what they committed."""
        done = self.scheduler.complete(step, drawn, seconds, now)
        for turn, committed in done:
            if committed.finish is not None:
                self._turns.pop(turn.spec.session, None)
        return [(turn.spec.session, committed) for turn, committed in done]

    def fail(self, step: Step) -> list[SessionKey]:
        """A step broke: end the turns that took part in it; their sessions."""
        broken = [part.turn for part in step.parts if self._turns.get(part.turn.spec.session) is part.turn]
        for turn in broken:
            turn.cached = 0  # Nobody knows what the step has left in its pages.
            self._end(turn)
        return [turn.spec.session for turn in broken]

    def _end(self, turn: Turn) -> None:
        self.scheduler.remove(turn)
        self._turns.pop(turn.spec.session, None)
