"""A step under construction: what it holds, what it is expected to take, and how long it may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from acespec.cloud.runner import Block
from acespec.cloud.step_cost import StepCost
from acespec.cloud.turn import Turn

LONER = 0.8
"""A block that costs more than this share of a step of its own waits for that."""


@dataclass(frozen=True, slots=True)
class Part:
    """One turn's share of a step, and why it is in it."""

    turn: Turn
    block: Block
    reason: str


@dataclass(slots=True)
class Step:
    """What runs next. Positions are those that verify rows look back on; `seconds` is the expected time of it all, and
    `tokens` what it should commit. `expected` counts the sessions that will be in it at the end, as far as is known."""

    cost: StepCost
    parts: list[Part] = field(default_factory=list)
    turns: set[Turn] = field(default_factory=set)
    rows: int = 0
    sessions: int = 0
    positions: int = 0
    prompt_rows: int = 0
    seconds: float = 0.0
    tokens: float = 0.0
    expected: int = 0

    @property
    def blocks(self) -> list[Block]:
        """The runner's input."""
        return [part.block for part in self.parts]

    def with_row(self, start: int) -> float:
        """Expected time if a verify block of one row at `start` joined."""
        return self.cost(self.rows + 1, self.sessions + 1, self.positions + start, self.prompt_rows)

    @property
    def coming(self) -> int:
        """Sessions that will join behind the next one, each with a row at least: they make its drafts dear, wherever
        the order puts it."""
        return max(0, self.expected - self.sessions - 1)

    def ladder(self, most: int, start: int) -> list[float]:
        """Expected times if a verify block at `start` joined with 0, 1, .. `most` rows, and those that are coming."""
        rows, sessions = self.rows + self.coming, self.sessions + self.coming
        return self.cost.ladder(most, rows, sessions, self.positions, self.prompt_rows, start)

    def gains_by(self, turn: Turn, most: float = LONER) -> bool:
        """False if `turn` would cost more here than the share `most` of a step of its own, and only delay others."""
        if not self.sessions:
            return True
        return self.with_row(turn.cached) - self.seconds <= most * self.cost(1, 1, turn.cached)

    def add(self, part: Part, tokens: float) -> None:
        """A verify block joins; it is expected to commit `tokens`."""
        rows = len(part.block.tokens)
        self.parts.append(part)
        self.turns.add(part.turn)
        self.rows += rows
        self.sessions += 1
        self.positions += rows * part.block.start
        self.tokens += tokens
        self._weigh()

    def add_prefill(self, part: Part) -> None:
        """A prefill chunk joins."""
        self.parts.append(part)
        self.turns.add(part.turn)
        self.prompt_rows += len(part.block.tokens)
        self._weigh()

    def _weigh(self) -> None:
        self.seconds = self.cost(self.rows, self.sessions, self.positions, self.prompt_rows)


class Slack:
    """How long a step may take: until the first of those that are not in it must start.

    `by_due`: turns in the order of their due times. `lead` is now plus the time of a step: what to subtract from a due
    time to get the seconds that are left.
    """

    def __init__(self, step: Step, by_due: Sequence[Turn], lead: float) -> None:
        self._step = step
        self._by_due = by_due
        self._lead = lead
        self._at = 0

    def allows(self, turn: Turn) -> bool:
        """May `turn` join the step without making another late?"""
        others, scheduled = self._by_due, self._step.turns
        while self._at < len(others) and others[self._at] in scheduled:
            self._at += 1
        first = self._at
        while first < len(others) and (others[first] is turn or others[first] in scheduled):
            first += 1
        if first == len(others):
            return True
        return self._step.with_row(turn.cached) <= others[first].clock.due - self._lead
