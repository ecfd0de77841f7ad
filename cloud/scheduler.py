"""Which turns take part in the next step (sans-IO): just-in-time verification.

A step is formed in this order, under a budget of rows:

1. due sessions, earliest due time first, with the drafts that pay, or plain;
2. one prefill chunk, the one whose first token is due first, if it is due, has its share coming, or delays nobody;
3. sessions whose drafts are worth a step now, or whose edge asked for one;
4. free running, as the operator's policy allows: plain steps that buy latency with verifier time.

A session is due if its next token is wanted before the step can have ended; one that would be late in the step after
this one rides along where that is nearly free. What is not due never makes others late: under `idle` and `never` it
joins only if the step then ends before the next due session would have to start. The policies differ in what else
steps. `always`: everybody, whenever the engine does. `idle`: everybody, in the slack. `never`: only sessions with
enough drafts, or whose edge asked.

Rows are shared among principals: first each gets an equal part of the budget, then what is left goes round. Due
sessions each have a row before anyone's drafts have two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from heapq import nsmallest

from acespec.cloud.backend import Committed
from acespec.cloud.overload import Overload
from acespec.cloud.residency import Residency
from acespec.cloud.runner import PREFILL_CHUNK, Drawn
from acespec.cloud.step import Part, Slack, Step
from acespec.cloud.step_cost import StepCost
from acespec.cloud.turn import Turn

FIRST_TOKEN_S = 1.0
"""Target time to the first token: then a prompt is as urgent as a due session."""
PREFILL_SHARE = 0.25
"""Share of the verifier's time that prompts get although due sessions wait."""
MOST_CREDIT_S = 1.0
RIDE = 0.25
"""Share of a step of its own for which a session that is due soon joins one that runs anyway."""


class FreeRun(StrEnum):
    """What sessions that are not due may cost the verifier."""

    ALWAYS = "always"
    IDLE = "idle"
    NEVER = "never"


class Scheduler:
    """Forms steps from turns and gives what they drew back to them. Times in seconds of one monotonic clock."""

    def __init__(
        self,
        cost: StepCost,
        residency: Residency,
        *,
        free_run: FreeRun = FreeRun.IDLE,
        max_rows: int = 64,
        chunk: int = PREFILL_CHUNK,
        first_token_s: float = FIRST_TOKEN_S,
    ) -> None:
        self.overload = Overload()
        self._cost = cost
        self._residency = residency
        self._free_run = free_run
        self._max_rows = max_rows
        self._chunk = chunk
        self._first_token_s = first_token_s
        self._turns: dict[Turn, None] = {}
        self._credit_s = 0.0

    def add(self, turn: Turn) -> None:
        """A turn begins. It waits until there are pages for it."""
        self._turns[turn] = None

    def remove(self, turn: Turn) -> None:
        """A turn ends; its part of a step in flight is ignored."""
        turn.closed = True
        self._turns.pop(turn, None)
        self._residency.leave(turn)

    def seat(self, now: float) -> None:
        """Give KV pages to turns that wait for them.

        It may be called while a step runs, and may then evict a turn of that step: what the step draws for it still
        counts, and what it writes is of no use (`kv_pages` says why that harms nobody).
        """
        self._residency.seat_waiting(now, self._turns)

    def plan(self, now: float) -> Step | None:
        """The next step, or None if no turn should step now."""
        self.seat(now)
        ready = [turn for turn in self._turns if turn.hold is not None and turn.may_step]
        decoding = sorted((t for t in ready if not t.prefilling), key=_due_of)
        end = now + self._cost(1)
        due = decoding[: bisect_right(decoding, end, key=_due_of)]
        sure = decoding if self._free_run is FreeRun.ALWAYS else due
        step = Step(self._cost, expected=min(len(sure), self._max_rows))
        rest = decoding[len(due) :]
        self._join_due(step, due, now)
        self._join_riders(step, rest[: bisect_right(rest, end + self._cost(1), key=_due_of)])
        self._join_prefill(step, [t for t in ready if t.prefilling], rest, now)
        slack = Slack(step, [] if self._free_run is FreeRun.ALWAYS else decoding, self._cost(1) + now)
        worth = [t for t in rest if t not in step.turns and (t.step_wanted or t.worth(now))]
        self._join(step, worth, "drafts", slack)
        if self._free_run is not FreeRun.NEVER:
            self._join(step, [t for t in rest if t not in step.turns], "free run", slack)
        return step if step.parts else None

    def complete(self, step: Step, drawn: Sequence[Drawn], seconds: float, now: float) -> list[tuple[Turn, Committed]]:
        """Give what a finished step drew to its turns; what they committed."""
        self._cost.observe(step.seconds, seconds)
        late = max((p.turn.clock.late(now) for p in step.parts if not p.turn.closed), default=0.0)
        self.overload.observe(now, late, seconds)
        if self._free_run is not FreeRun.ALWAYS and any(t.prefilling for t in self._turns):
            self._credit_s = min(MOST_CREDIT_S, self._credit_s + PREFILL_SHARE * seconds)
        row_s = seconds / max(1, step.rows + step.prompt_rows)
        done: list[tuple[Turn, Drawn, int]] = []
        for part, samples in zip(step.parts, drawn, strict=True):
            if not part.turn.closed and (taken := self._apply(part, samples, row_s * len(part.block.tokens), now)):
                done.append((part.turn, samples, taken))
        load = min(1.0, max(step.rows / self._max_rows, self.overload.level))
        dues = [] if self._free_run is FreeRun.ALWAYS else self._next_dues()
        return [
            (turn, turn.report(samples, taken, seconds, load, self._wait(turn, dues, now)))
            for turn, samples, taken in done
        ]

    def wake_at(self) -> float | None:
        """When a turn could become ready by the passing of time alone; None if only an event can change that."""
        times = [t.clock.due - self._cost(1) for t in self._turns if t.may_step and t.hold is not None]
        return min(times, default=None)

    # -- forming a step ------------------------------------------------------------------------------------------

    def _join_due(self, step: Step, due: list[Turn], now: float) -> None:
        """Each due turn gets a row before the drafts of those before it get what is left."""
        waiting = len(due)
        for turn, room in self._fairly(step, due):
            waiting -= 1
            if turn.waiting:  # It was due later than one before it, which needed its pages.
                continue
            if not step.gains_by(turn):
                return
            reserved = min(waiting, self._max_rows - step.rows - 1)
            added = self._add(step, turn, "due", room - reserved if room > reserved else 1)
            while not added and self._residency.make_room(turn, now, self._turns, step.turns):
                added = self._add(step, turn, "due", 1)

    def _join_riders(self, step: Step, turns: list[Turn]) -> None:
        """Who would be late in the step after this one rides along, if that is nearly free."""
        for turn, room in self._fairly(step, turns if step.parts else []):
            if step.gains_by(turn, RIDE):
                self._add(step, turn, "due", room)

    def _join(self, step: Step, turns: list[Turn], reason: str, slack: Slack) -> None:
        """Turns that are not due join as far as they delay nobody who is."""
        for turn, room in self._fairly(step, turns):
            if step.gains_by(turn) and slack.allows(turn):
                self._add(step, turn, reason, room)

    def _join_prefill(self, step: Step, prefilling: list[Turn], rest: list[Turn], now: float) -> None:
        turn = min((t for t in prefilling if not t.waiting), key=lambda t: (t.opened, t.queued_at), default=None)
        if turn is None:
            return
        block = turn.prefill_block(self._chunk)
        seconds = self._cost(step.rows, step.sessions, step.positions, len(block.tokens))
        extra = seconds - step.seconds
        delays = step.rows > 0 or any(t.clock.due - self._cost(1) < now + seconds for t in rest[:1])
        overdue = now + seconds >= turn.opened + self._first_token_s
        if self._free_run is FreeRun.ALWAYS or overdue or not delays or self._credit_s >= extra:
            step.add_prefill(Part(turn, block, "prefill"))
            self._credit_s = max(0.0, self._credit_s - extra) if delays else self._credit_s

    def _add(self, step: Step, turn: Turn, reason: str, rows: int) -> bool:
        depth = self._residency.depth(turn, turn.draft_depth(rows))
        if depth is None:
            return False
        cost = step.ladder(min(rows, turn.pending + 1), turn.cached) if depth else ()
        block, tokens = turn.verify_block(depth, cost, step.tokens + step.coming)
        step.add(Part(turn, block, reason), tokens)
        return True

    def _fairly(self, step: Step, turns: list[Turn]) -> Iterator[tuple[Turn, int]]:
        """Turns in their order with the rows that they may take: within each principal's part first, then the rest."""
        principals = {turn.principal for turn in turns}
        part = max(1, self._max_rows // len(principals)) if principals else 0
        used: Counter[str] = Counter()
        left: list[Turn] = []
        for turn in turns:
            room = min(self._max_rows - step.rows, part - used[turn.principal])
            if room < 1:
                left.append(turn)
                continue
            before = step.rows
            yield turn, room
            used[turn.principal] += step.rows - before
        for turn in left:
            if step.rows < self._max_rows:
                yield turn, self._max_rows - step.rows

    # -- after a step --------------------------------------------------------------------------------------------

    def _apply(self, part: Part, drawn: Drawn, seconds: float, now: float) -> int:
        turn = part.turn
        rate = turn.spec.rate
        if self.overload.level > 0:
            rate = self.overload.rate(rate, turn.knee(self._cost(1)))
        taken = turn.apply(part.block, drawn, seconds, now, rate)
        if taken and part.reason == "prefill":
            self._residency.publish(turn)
        if turn.finish is not None:
            self.remove(turn)
        elif taken:
            self._residency.settle(turn)
            turn.catch_up(now, self._cost(1) if self.overload.level == 0 else None)
        return taken

    def _next_dues(self) -> list[float]:
        return nsmallest(2, [t.clock.due for t in self._turns if t.hold is not None and t.may_step])

    def _wait(self, turn: Turn, dues: Sequence[float], now: float) -> float:
        """Expected time to the turn's next step: none if it may free-run, else until it is due."""
        if turn.finish is not None or self._free_run is FreeRun.ALWAYS:
            return 0.0
        others = [due for due in dues if due != turn.clock.due]
        if self._free_run is FreeRun.IDLE and (not others or now + 2 * self._cost(1) <= others[0]):
            return 0.0
        return max(0.0, turn.clock.due - self._cost(1) - now)


def _due_of(turn: Turn) -> float:
    return turn.clock.due
