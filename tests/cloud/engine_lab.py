"""The turn table over the toy target, stepped by hand at times of the test's choosing."""

from __future__ import annotations

from collections.abc import Sequence

from acespec.cloud.backend import Committed, Offer, SessionKey, TurnSpec
from acespec.cloud.due import DueClock
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.step import Step
from acespec.cloud.stops import TextDecoder
from acespec.cloud.turn import Limits, Turn
from acespec.cloud.turn_table import TurnTable
from acespec.proto.nodes import ROOT, Node
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.timing_profile import TimingProfile
from tests.cloud.toy import TOY_TIMING, ToyRunner, toy_text

VOCAB = 64
PROMPT = (3, 1, 4, 1, 5)


class Lab:
    """Turns by seed; `now` moves only as the test says."""

    def __init__(
        self,
        free_run: FreeRun = FreeRun.ALWAYS,
        *,
        timing: TimingProfile = TOY_TIMING,
        pages: int = 64,
        max_rows: int = 64,
        limits: Limits | None = None,
        max_length: int = 512,
        quantum_s: float = 5.0,
    ) -> None:
        self.runner = ToyRunner(VOCAB, max_length, pages, timing)
        self.table = TurnTable(
            self.runner,
            limits=limits or Limits(max_length=max_length),
            decoder=_no_text,
            free_run=free_run,
            max_rows=max_rows,
            quantum_s=quantum_s,
        )
        self.now = 0.0
        self.commits: list[tuple[SessionKey, Committed]] = []
        self._nodes: dict[SessionKey, int] = {}

    def open(
        self,
        seed: int = 0,
        *,
        rate: float = 0.0,
        max_tokens: int = 24,
        principal: str | None = None,
        prompt: Sequence[int] = PROMPT,
    ) -> Turn:
        """Start a turn of its own session; the seed tells sessions apart."""
        key = (f"p{seed}" if principal is None else principal, seed.to_bytes(16))
        spec = TurnSpec(key, tuple(prompt), len(prompt), SamplingParams(), seed, max_tokens, rate=rate)
        self.table.open(self.now, spec)
        self._nodes[key] = 0
        return next(t for t in self.table.turns if t.spec is spec)

    def plan(self, now: float | None = None) -> Step | None:
        """The step that would run at `now`."""
        self.now = self.now if now is None else now
        return self.table.plan(self.now)

    def run(self, step: Step, seconds: float | None = None) -> list[tuple[SessionKey, Committed]]:
        """Execute a planned step; it takes what the profile says, or `seconds`."""
        seconds = step.seconds if seconds is None else seconds
        drawn = self.runner.step(step.blocks)
        self.now += seconds
        done = self.table.complete(self.now, step, drawn, seconds)
        self.commits += done
        return done

    def step(self, now: float | None = None) -> list[str]:
        """Plan and execute a step that takes no time; the reasons of its parts."""
        planned = self.plan(now)
        if planned is None:
            return []
        self.run(planned, 0.0)
        return [part.reason for part in planned.parts]

    def prefill(self) -> None:
        """Step until every prompt is done."""
        while any(t.prefilling or t.waiting for t in self.table.turns):
            self.step()

    def draft(self, turn: Turn, tokens: Sequence[int], step: bool = False) -> None:
        """Offer a chain behind the tip."""
        key = turn.spec.session
        first = self._nodes[key]
        self._nodes[key] += len(tokens)
        nodes = tuple(Node(ROOT if i == 0 else first + i - 1, t) for i, t in enumerate(tokens))
        self.table.offer(self.now, key, Offer(0, first, nodes, len(turn.tokens), len(turn.tokens), step))

    def tree(self, turn: Turn, nodes: Sequence[tuple[int, int]]) -> None:
        """Offer (parent index among these nodes or -1, token) behind the tip."""
        key = turn.spec.session
        first = self._nodes[key]
        self._nodes[key] += len(nodes)
        sent = tuple(Node(ROOT if p < 0 else first + p, t) for p, t in nodes)
        self.table.offer(self.now, key, Offer(0, first, sent, len(turn.tokens), len(turn.tokens)))


def truth(turn: Turn, count: int) -> list[int]:
    """What the target will say next in `turn`."""
    return toy_text(turn.tokens, turn.spec.seed, VOCAB, count)


def answer(turn: Turn) -> list[int]:
    """All that the target says in `turn`."""
    spec = turn.spec
    return [*spec.tokens, *toy_text(spec.tokens, spec.seed, VOCAB, spec.max_tokens)]


def make_due(turn: Turn, at: float) -> None:
    """Set the turn's due time."""
    turn.clock = DueClock(at, turn.spec.rate)


def _no_text() -> TextDecoder:
    raise AssertionError("the toy target has no text")
