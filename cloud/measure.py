"""Measures t_v(rows, sessions, context) of the runner at hand, by nothing but steps: a quick curve when a verifier
starts, the whole grid for `acespec-verifier bench`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.runner import PAGE, PREFILL_CHUNK, Block, Runner, pages_for, prefill_chunks
from acespec.cloud.timing_fit import Measurement, Timed, added_rate
from acespec.proto.errors import UsageError
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.timing_profile import TimingProfile

QUICK_ROWS = (1, 2, 4, 8, 16, 32, 64)
QUICK_CONTEXT = 32
GREEDY = DrawRule(SamplingParams(temperature=0.0), seed=0, prompt_len=0)
SHORTEST_S = 1e-9
"""A clock may be too coarse for a toy's step; a profile has no steps of no time."""

Clock = Callable[[], float]
Pages = tuple[int, ...]
Progress = Callable[[int, int], None]
"""Told after each step: how many are done, and of how many."""


def silent(done: int, total: int) -> None:
    """Tell nobody."""


def quick_profile(runner: Runner, budget_s: float = 1.5, clock: Clock = time.perf_counter) -> TimingProfile:
    """The curve of one session on a short context; a slow machine gets a shorter one.

    Each point is the faster of two steps, and at least the point before it. The runner must be idle: pages from 0 on
    are overwritten.
    """
    room = min(runner.max_length, runner.pages * PAGE)
    context = min(QUICK_CONTEXT, room // 2)
    pages = tuple(range(pages_for(room)))
    probe = Probe(runner, clock)
    began = clock()
    prompt_s = min(probe.prefill(pages, context), probe.prefill(pages, context)) if context else 0.0
    curve: list[tuple[int, float]] = []
    slowest = SHORTEST_S
    for rows in (r for r in QUICK_ROWS if context + r <= room):
        slowest = max(slowest, min(probe.verify(context, [(pages, rows)]) for _ in range(2)))
        curve.append((rows, slowest))
        if clock() - began > budget_s:
            break
    rate = added_rate(context or 1, prompt_s, curve[0][1])
    return TimingProfile("measured", tuple(curve), 0.0, rate, "measured at start on this machine, one session")


class Probe:
    """Makes steps of made-up tokens and times them."""

    def __init__(self, runner: Runner, clock: Clock = time.perf_counter) -> None:
        self._runner = runner
        self._clock = clock

    def prefill(self, pages: Pages, length: int) -> float:
        """Run positions 0 .. length - 1 into pages; the seconds that the first chunk took."""
        tokens = self._tokens(length)
        chunks = [
            Block(pages, start, tokens[start:end], tokens, end - start, GREEDY)
            for start, end in prefill_chunks(0, length)
        ]
        first, *_ = [self._timed([chunk]) for chunk in chunks]
        return first

    def verify(self, context: int, sessions: Sequence[tuple[Pages, int]]) -> float:
        """Seconds of one step in which each session (pages, rows) verifies its rows behind `context` positions."""
        prefix = self._tokens(context)
        return self._timed([Block(pages, context, self._tokens(n), prefix, 0, GREEDY) for pages, n in sessions])

    def _timed(self, blocks: Sequence[Block]) -> float:
        began = self._clock()
        self._runner.step(blocks)
        return self._clock() - began

    def _tokens(self, count: int) -> tuple[int, ...]:
        return tuple((7 * i + 1) % self._runner.vocab_size for i in range(count))


def measure_timing(
    runner: Runner,
    rows: Sequence[int],
    sessions: Sequence[int],
    contexts: Sequence[int],
    repeats: int = 5,
    progress: Progress = silent,
    clock: Clock = time.perf_counter,
) -> Measurement:
    """Time steps of `rows` rows in all, dealt out evenly to `sessions` sessions that look back on `contexts` each.

    One row and one session are always among them. Each point is timed once a round, in alternating order, so that a
    machine that gets slower hits all. Every session has pages of its own, as strangers have. The runner must be idle.

    Raises:
        UsageError: a figure below 1, or not even one row behind the shortest context fits.
    """
    if min([*rows, *sessions, *contexts, repeats]) < 1:
        raise UsageError("rows, sessions, contexts and repeats are counted from 1; ask for at least one of each")
    plan = _Plan(runner, sorted({1, *rows}), sorted({1, *sessions}), sorted(set(contexts)))
    probe = Probe(runner, clock)
    work = len(plan.prompts) + repeats * len(plan.cells)
    prompts: list[tuple[int, float]] = []
    for context, pages in plan.prompts:
        prompts.append((min(context, PREFILL_CHUNK), probe.prefill(pages, context)))
        progress(len(prompts), work)
    times: dict[_Cell, list[float]] = {cell: [] for cell in plan.cells}
    for number in range(repeats):
        for cell in plan.cells[:: 1 if number % 2 == 0 else -1]:
            times[cell].append(probe.verify(cell.context, plan.shares(cell)))
            progress(len(prompts) + sum(map(len, times.values())), work)
    chunk = max(rows for rows, _ in prompts)
    return Measurement(
        points=tuple(_summary(cell, seconds) for cell, seconds in times.items()),
        repeats=repeats,
        chunk_rows=chunk,
        chunk_s=statistics.median(seconds for rows, seconds in prompts if rows == chunk),
        notes=tuple(plan.notes),
    )


@dataclass(frozen=True, slots=True)
class _Cell:
    context: int
    sessions: int
    rows: int


class _Plan:
    """What of a grid fits into a runner, and where; shorter contexts and fewer sessions have the first choice."""

    def __init__(self, runner: Runner, rows: list[int], sessions: list[int], contexts: list[int]) -> None:
        self.notes: list[str] = []
        self.cells: list[_Cell] = []
        self._length = runner.max_length
        self._free = iter(range(runner.pages))
        self._left = runner.pages
        self._tables: dict[int, list[Pages]] = {}
        for context in contexts:
            self._add(context, rows, sessions)
        if not self.cells:
            raise UsageError(
                f"a context of {contexts[0]} does not fit into {runner.max_length} positions and {runner.pages} "
                f"pages of {PAGE}; ask for a shorter one"
            )

    @property
    def prompts(self) -> list[tuple[int, Pages]]:
        """(context, pages) of every session of every context."""
        return [(context, pages) for context, tables in self._tables.items() for pages in tables]

    def shares(self, cell: _Cell) -> list[tuple[Pages, int]]:
        """(pages, rows) of the cell's sessions: as even as can be."""
        each, more = divmod(cell.rows, cell.sessions)
        return [(self._tables[cell.context][i], each + (i < more)) for i in range(cell.sessions)]

    def _add(self, context: int, rows: list[int], sessions: list[int]) -> None:
        most = self._length - context
        short = [r for r in rows if r > most]
        if most < 1:
            self.notes.append(f"context {context} left out: the model's limit is {self._length} positions")
            return
        if short:
            limit = f"no session takes more than {most}, the model's limit is {self._length} positions"
            self.notes.append(f"rows {_list(short)} partly left out at context {context}: {limit}")
        tables = self._tables.setdefault(context, [])
        for count in sessions:
            if not self._seat(tables, count, context, min(most, rows[-1])):
                what = f"{count} sessions" if count > 1 else "everything"
                self.notes.append(f"{what} left out at context {context}: too few KV pages")
                break
            fitting = [r for r in rows if r >= count and -(-r // count) <= most]
            self.cells += [_Cell(context, count, r) for r in fitting]

    def _seat(self, tables: list[Pages], count: int, context: int, most: int) -> bool:
        """Give sessions up to number `count` their pages; only the first ever brings all rows of a step."""
        sizes = [pages_for(context + (most if i == 0 else -(-most // 2))) for i in range(len(tables), count)]
        if sum(sizes) > self._left:
            return False
        self._left -= sum(sizes)
        tables += [tuple(next(self._free) for _ in range(size)) for size in sizes]
        return True


def _summary(cell: _Cell, seconds: list[float]) -> Timed:
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
    return Timed(cell.rows, cell.sessions, cell.context, low, median, high)


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(str(n) for n in numbers)
