"""Which turns take part in the next step (sans-IO).

A step is formed under a row budget, in this order:

1. due sessions, earliest due time first, with the drafts that pay, or plain;
2. one prefill chunk, first come first served;
3. sessions whose drafts are worth a step now, or whose edge asked for one;
4. free running, as the operator's policy allows: plain steps that buy latency with verifier time.

The policy governs sessions that are not due. `always`: they step whenever the engine does. `idle`: only in what the
budget has left. `never`: once enough drafts are pending, on request, or after a timeout, so that nothing deadlocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from acespec.cloud.acceptance import CostCurve
from acespec.cloud.backend import Committed
from acespec.cloud.runner import PREFILL_CHUNK, Block
from acespec.cloud.turn import Turn

TIMEOUT_S = 1.0
"""A session under `never` steps after this long whatever it has."""


class FreeRun(StrEnum):
    """What sessions that are not due may cost the verifier."""

    ALWAYS = "always"
    IDLE = "idle"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Part:
    """One turn's share of a step, and why it is in it."""

    turn: Turn
    block: Block
    reason: str


@dataclass(frozen=True, slots=True)
class Step:
    """What runs next."""

    parts: tuple[Part, ...]

    @property
    def blocks(self) -> list[Block]:
        """The runner's input."""
        return [part.block for part in self.parts]

    @property
    def rows(self) -> int:
        """Rows of all blocks."""
        return sum(len(part.block.tokens) for part in self.parts)


class Scheduler:
    """Forms steps from turns and gives their samples back to them. Times in seconds of one monotonic clock."""

    def __init__(
        self, cost: CostCurve, *, free_run: FreeRun = FreeRun.IDLE, max_rows: int = 64, chunk: int = PREFILL_CHUNK
    ) -> None:
        self._cost = cost
        self._free_run = free_run
        self._max_rows = max_rows
        self._chunk = chunk
        self._turns: list[Turn] = []

    def add(self, turn: Turn) -> None:
        """A turn begins."""
        self._turns.append(turn)

    def remove(self, turn: Turn) -> None:
        """A turn ends; its part of a step in flight is ignored."""
        turn.closed = True
        self._turns = [t for t in self._turns if t is not turn]

    def plan(self, now: float) -> Step | None:
        """The next step, or None if no turn should step now."""
        ready = [t for t in self._turns if t.may_step]
        decoding = [t for t in ready if not t.prefilling]
        parts: list[Part] = []
        budget = self._max_rows
        for turn, reason in self._candidates(decoding, now):
            if budget < 1:
                break
            block = turn.verify_block(self._cost, self._max_rows - budget, budget)
            parts.append(Part(turn, block, reason))
            budget -= len(block.tokens)
        if prefill := min((t for t in ready if t.prefilling), key=lambda t: t.last_step, default=None):
            parts.append(Part(prefill, prefill.prefill_block(self._chunk), "prefill"))
        return Step(tuple(parts)) if parts else None

    def complete(
        self, step: Step, samples: Sequence[tuple[int, ...]], seconds: float, now: float
    ) -> list[tuple[Turn, Committed]]:
        """Give the samples of a finished step to its turns; what they committed."""
        done: list[tuple[Turn, Committed]] = []
        load = min(1.0, step.rows / self._max_rows)
        for part, drawn in zip(step.parts, samples, strict=True):
            if part.turn.closed:
                continue
            share = seconds * len(part.block.tokens) / step.rows
            committed = part.turn.apply(part.block, drawn, share, now)
            if committed is None:
                continue
            if committed.finish is not None:
                self.remove(part.turn)
            wait = self._wait(part.turn, now)
            done.append((part.turn, replace(committed, load=load, verify_s=seconds, next_in_s=wait)))
        return done

    def wake_at(self) -> float | None:
        """When a turn could become ready by the passing of time alone; None if only an event can change that."""
        times = [self._wake(t) for t in self._turns if t.may_step]
        return min(times, default=None)

    def _candidates(self, decoding: Sequence[Turn], now: float) -> Iterable[tuple[Turn, str]]:
        end = now + self._cost(1)
        due = [t for t in decoding if t.clock.is_due(end)]
        yield from ((t, "due") for t in sorted(due, key=lambda t: t.clock.due))
        rest = sorted((t for t in decoding if not t.clock.is_due(end)), key=lambda t: t.last_step)
        worth = [t for t in rest if t.step_wanted or t.drafts_pay or self._timed_out(t, now)]
        yield from ((t, "drafts") for t in worth)
        if self._free_run is not FreeRun.NEVER:
            yield from ((t, "free run") for t in rest if t not in worth)

    def _timed_out(self, turn: Turn, now: float) -> bool:
        return self._free_run is FreeRun.NEVER and now - turn.last_step >= TIMEOUT_S

    def _wake(self, turn: Turn) -> float:
        if self._free_run is not FreeRun.NEVER or turn.prefilling:
            return -math.inf
        return min(turn.clock.due - self._cost(1), turn.last_step + TIMEOUT_S)

    def _wait(self, turn: Turn, now: float) -> float:
        """Expected time to the turn's next step."""
        if self._free_run is not FreeRun.NEVER or turn.finish is not None:
            return 0.0
        return max(0.0, min(turn.clock.due - self._cost(1), now + TIMEOUT_S) - now)
