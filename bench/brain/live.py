"""A dozen cells of the grid on the live stack beside the world, and three on a real pair of models.

A live cell is the same scenario on a replaying verifier process, a link process and a real client over gRPC; text,
right guesses and users are the world's own. Beside each other stand tokens/s in virtual and in real time. What matters
is the order of the ways to draft: of two that the world sets more than 5 % apart, the live stack must prefer the same.
The real pair is measured by `real_cells.py`.

    python -m acespec.bench.brain live --json live.json      cells side by side: hardly anything is computed
    python -m acespec.bench.brain live --quick
    python -m acespec.bench.brain live --real                the real pair only, one run at a time
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

from acespec.bench.brain.cells import PLAIN, Cell, Effort, Figures, Way, figures_of, in_parallel, ours, scenario_of
from acespec.bench.brain.grid import SLOW, chosen
from acespec.sim.live import run_live
from acespec.sim.world.world import run as run_world

CELLS = (
    *(Cell("a100-70b", "wan50", a) for a in (".6", ".8", ".9", "code", "prose")),
    *(Cell("a100-70b", link, ".8") for link in ("lan", "gprs", "satellite")),
    *(Cell("h100-70b-fp8", link, ".8") for link in ("lan", "lte", "wan50")),
    Cell("a100-70b", "wan50", ".8", SLOW),
)
WAYS = (
    PLAIN,
    ours("fixed:8"),
    ours("rate"),
    ours("confidence"),
    ours("ucb"),
    ours("rate", "siblings:4"),
    ours("rate", "on"),
)
APART = 0.05
"""Of the world's speeds: what is nearer has no order that a live run could confirm."""


@dataclass(frozen=True, slots=True)
class Task:
    """One way in one cell, both in the world and live."""

    cell: Cell
    way: Way
    effort: Effort


@dataclass(frozen=True, slots=True)
class Both:
    """What came of it. Live, what the drafter did is not counted."""

    world: Figures
    live: Figures

    @property
    def ratio(self) -> float:
        """Live speed over that of the world."""
        return self.live.speed / self.world.speed


def run_task(task: Task) -> Both:
    """Run it in the world and live, with the same seeds."""
    scenarios = [scenario_of(task.cell, task.way, task.effort, 1 + seed) for seed in range(task.effort.seeds)]
    world = figures_of([run_world(scenario) for scenario in scenarios])
    return Both(world, figures_of([run_live(scenario) for scenario in scenarios]))


def same_order(ways: Mapping[str, Both]) -> tuple[int, int]:
    """Pairs of ways that the world sets apart, and how many of them the live stack orders alike."""
    pairs = [
        (one, other)
        for one, other in combinations(ways.values(), 2)
        if abs(one.world.speed - other.world.speed) > APART * max(one.world.speed, other.world.speed)
    ]
    alike = [(a.world.speed < b.world.speed) == (a.live.speed < b.live.speed) for a, b in pairs]
    return len(pairs), sum(alike)


# -- for a person ------------------------------------------------------------------------------------------------------


def header(ways: Sequence[Way]) -> str:
    """Over the rows of `line_of`."""
    return f"{'tokens/s, world live':32}" + "".join(f"{way.name:>16}" for way in ways) + f"{'live/world':>12}  order"


def line_of(cell: Cell, ways: Mapping[str, Both]) -> str:
    """A cell."""
    speeds = "".join(f"{both.world.speed:9.2f}{both.live.speed:7.2f}" for both in ways.values())
    ratios = [both.ratio for both in ways.values()]
    pairs, alike = same_order(ways)
    return f"{cell.name:32}{speeds}{min(ratios):6.3f}-{max(ratios):5.3f}  {alike} of {pairs}"


# -- the command -------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Question`."""
    parser.add_argument("--quick", action="store_true", help="two cells, one answer")
    parser.add_argument("--real", action="store_true", help="the cells of the real pair instead")
    parser.add_argument("--pair", default="qwen", help="the real pair: qwen or smollm2 [qwen]")
    parser.add_argument(
        "--cell", action="append", help="only cells whose name holds these words (a:b); may be repeated"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--turns", type=int, default=2, help="answers of a run")
    parser.add_argument("--tokens", type=int, help="of an answer [90; of the real pair 48]")
    parser.add_argument("--jobs", type=int, default=4, help="runs side by side [4]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")


def run(args: argparse.Namespace) -> int:
    """See `Question`: 1 if an order is not confirmed, or ids of the real pair differ."""
    if args.real:
        from acespec.bench.brain.real_cells import run_real

        return run_real(args.pair, args.tokens or 48, quick=args.quick, file=args.json)
    effort = Effort(args.seeds, 1 if args.quick else args.turns, args.tokens or 90)
    cells = chosen(CELLS[1::7] if args.quick else CELLS, args.cell or ())
    tasks = [Task(cell, way, effort) for cell in cells for way in WAYS]
    began = time.monotonic()
    found: dict[tuple[Cell, str], Both] = {}
    sys.stdout.write(header(WAYS) + "\n")
    for task, both in in_parallel(run_task, tasks, args.jobs):
        found[task.cell, task.way.name] = both
        sys.stderr.write(f"{len(found)} of {len(tasks)} runs, {time.monotonic() - began:.0f} s\n")
        ways = {way.name: found[task.cell, way.name] for way in WAYS if (task.cell, way.name) in found}
        if len(ways) == len(WAYS):
            sys.stdout.write(line_of(task.cell, ways) + "\n")
            sys.stdout.flush()
    rows = {cell: {way.name: found[cell, way.name] for way in WAYS} for cell in cells}
    pairs, alike = (sum(column) for column in zip(*(same_order(ways) for ways in rows.values()), strict=True))
    sys.stdout.write(f"{alike} of {pairs} pairs that the world sets more than {100 * APART:g} % apart are so live\n")
    if args.json:
        args.json.write_text(json.dumps([_as_json(c, w) for c, w in rows.items()], indent=1) + "\n", encoding="utf-8")
    return 0 if alike == pairs else 1


def _as_json(cell: Cell, ways: Mapping[str, Both]) -> dict[str, object]:
    speeds = {name: {"world": asdict(both.world), "live": asdict(both.live)} for name, both in ways.items()}
    return {"cell": asdict(cell), "ways": speeds, "order": same_order(ways)}
