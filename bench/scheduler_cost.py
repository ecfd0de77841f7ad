"""What the scheduler itself costs: `python -m acespec.bench.scheduler_cost [--json]`.

Time of planning a step and of handing its result back, on the replay backend with a target that takes no time, for 1,
64, 256 and 1,000 sessions. Every session that takes part in a step has a chain of four drafts pending, or none. `offer`
is the time of taking one message of four draft tokens. Medians and 90th percentiles over steps; CPU time of the one
thread that does it, so that other load does not count.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from dataclasses import asdict, dataclass
from statistics import median, quantiles

from acespec.cloud.backend import Offer, TurnSpec
from acespec.cloud.replay.runner import ReplayRunner
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.stops import TextDecoder
from acespec.cloud.turn import Limits, Turn
from acespec.cloud.turn_table import TurnTable
from acespec.proto.errors import ServerFault
from acespec.proto.nodes import ROOT, Node
from acespec.proto.replay_text import replay_text
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.timing_profile import TimingProfile

VOCAB = 32_000
PROMPT = tuple(range(1, 33))
NO_TIME = TimingProfile("no time", ((1, 1e-9), (1024, 1e-9)), 0.0, 1e9, "none: this bench measures what is around it")
DRAFT = 4


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds a step, and microseconds an offered message."""

    sessions: int
    drafted: bool
    rows: float
    plan_ms: float
    complete_ms: float
    both_ms: float
    both_p90_ms: float
    offer_us: float


class Crowd:
    """Sessions at 20 tokens/s each under `always`: all take part in every step, up to the row budget."""

    def __init__(self, sessions: int, max_rows: int) -> None:
        self._text = replay_text(None, VOCAB)
        self._runner = ReplayRunner(self._text, NO_TIME, vocab_size=VOCAB)
        limits = Limits(max_length=self._runner.max_length)
        self._table = TurnTable(
            self._runner, limits=limits, decoder=_no_text, free_run=FreeRun.ALWAYS, max_rows=max_rows
        )
        self._nodes: dict[bytes, int] = {}
        self.now = 0.0
        for n in range(sessions):
            key = (f"p{n % 8}", n.to_bytes(16, "big"))
            spec = TurnSpec(key, PROMPT, len(PROMPT), SamplingParams(), n, 30_000, rate=20.0)
            self._table.open(self.now, spec)
            self._nodes[key[1]] = 0
        while any(turn.prefilling or turn.waiting for turn in self._table.turns):
            self.step()

    def step(self) -> tuple[float, float, int]:
        """(seconds of planning, seconds of completing, rows)."""
        began = time.thread_time()
        step = self._table.plan(self.now)
        planned = time.thread_time()
        if step is None:
            raise ServerFault("no session wants a step; the bench is wrong")
        drawn = self._runner.step(step.blocks)
        self.now += 0.025
        ran = time.thread_time()
        self._table.complete(self.now, step, drawn, 1e-9)
        return planned - began, time.thread_time() - ran, step.rows

    def draft(self) -> list[float]:
        """Offer right drafts to sessions that have none; seconds of each offer."""
        return [self._offer(turn) for turn in self._table.turns if not turn.draft_depth(DRAFT + 1)]

    def _offer(self, turn: Turn) -> float:
        key = turn.spec.session
        first, base = self._nodes[key[1]], len(turn.tokens)
        self._nodes[key[1]] += DRAFT
        tokens = [self._text.token(turn.spec.seed, base + i, len(PROMPT)) for i in range(DRAFT)]
        nodes = tuple(Node(ROOT if i == 0 else first + i - 1, token) for i, token in enumerate(tokens))
        offer = Offer(0, first, nodes, base, base)
        began = time.thread_time()
        self._table.offer(self.now, key, offer)
        return time.thread_time() - began


def measure(sessions: int, drafted: bool, steps: int, max_rows: int) -> Cost:
    """Step a crowd; what its scheduling took."""
    crowd = Crowd(sessions, max_rows)
    plans, completes, rows, offers = [], [], [], [0.0]
    gc.collect()
    for _ in range(steps):
        offers += crowd.draft() if drafted else []
        plan, complete, taken = crowd.step()
        plans.append(plan)
        completes.append(complete)
        rows.append(taken)
    both = [a + b for a, b in zip(plans, completes, strict=True)]
    return Cost(
        sessions, drafted, sum(rows) / len(rows), 1e3 * median(plans), 1e3 * median(completes), 1e3 * median(both),
        1e3 * quantiles(both, n=10)[-1], 1e6 * median(offers),
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--max-rows", type=int, default=256, help="row budget of a step")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    costs = [
        measure(sessions, drafted, args.steps, args.max_rows)
        for sessions in (1, 64, 256, 1000)
        for drafted in (False, True)
    ]
    if args.json:
        sys.stdout.write(json.dumps([asdict(cost) for cost in costs]) + "\n")
        return
    sys.stdout.write("sessions  drafts  rows/step  plan ms  complete ms  both ms (p90)  offer us\n")
    for c in costs:
        sys.stdout.write(
            f"{c.sessions:8d}  {'yes' if c.drafted else 'no':>6}  {c.rows:9.0f}  {c.plan_ms:7.3f}  "
            f"{c.complete_ms:11.3f}  {c.both_ms:6.3f} ({c.both_p90_ms:.3f})  {c.offer_us:8.1f}\n"
        )


def _no_text() -> TextDecoder:
    raise ServerFault("the replay target has no stop strings")


if __name__ == "__main__":
    main()
