"""Every controller and every fixed length against an oracle, over verifiers, links and accuracies, in the world.

Ways to draft, in each cell: nothing (plain), a fixed chain of 1 to 16, the controllers rate, confidence and ucb as
chains; rate and two fixed lengths (the best chain's, and 16) with four siblings and with a tree. The oracle drafts what
will be accepted and nothing else (`sim/world/oracle_drafter.py`); its speed in a cell is that of the fastest of: the
oracle's drafter shipped by the fixed controller, the same shipped by the rate controller, every fixed length. So it is
above every choice of a fixed D, and knows each round's D besides. The oracle of a chain is the reference; that of a
tree knows which of four guesses is right at each place and drafts behind that one only, which no tree can.

Regret is the share of speed that is missing. A cell misses where `rate`, as a chain or as a tree (the default), is more
than 5 % below the best fixed chain; `?` behind it says that this is within two standard errors of the 5 %.

    python -m acespec.bench.brain grid --json grid.json
    python -m acespec.bench.brain grid --quick
    python -m acespec.bench.brain grid --cell a100-70b:gprs --seeds 10     every cell that holds these words
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from acespec.bench.brain.cells import PLAIN, Cell, Effort, Figures, Ratio, Way, in_parallel, measure, ours
from acespec.proto.errors import UsageError
from acespec.sim.sweep import usable_cores

SLOW = "laptop-0.5b-q4"
ACCURACIES = (".6", ".8", ".9", "code", "prose")
CELLS = (
    *(Cell("a100-70b", link, a) for link in ("lan", "wan50", "gprs", "satellite") for a in ACCURACIES),
    *(Cell("a100-70b", "lte", a) for a in (".8", "prose")),
    *(Cell("h100-70b-fp8", link, a) for link in ("lan", "lte", "wan50", "gprs") for a in (".6", ".8", "code", "prose")),
    Cell("h100-70b-fp8", "satellite", ".9"),
    *(Cell("theory-25ms", link, ".9") for link in ("lan", "wan50")),
    *(Cell("a100-70b", link, a, SLOW) for link in ("lan", "wan50", "gprs") for a in (".8", "prose")),
)
QUICK = (
    Cell("a100-70b", "wan50", ".8"),
    Cell("h100-70b-fp8", "wan50", "prose"),
    Cell("h100-70b-fp8", "lan", ".8"),
    Cell("a100-70b", "gprs", ".8"),
)
LENGTHS = tuple(range(1, 17))
CONTROLLERS = ("rate", "confidence", "ucb")
SHAPES = ("siblings:4", "on")
MARGIN = 0.05
"""What `rate` may be below the best fixed length."""


@dataclass(frozen=True, slots=True)
class Task:
    """A cell with what to run in it."""

    cell: Cell
    effort: Effort
    lengths: tuple[int, ...] = LENGTHS


@dataclass(frozen=True, slots=True)
class Outcome:
    """A cell with the figures of every way, by the names that `ways` and `ours` give."""

    cell: Cell
    ways: Mapping[str, Figures]

    def best_fixed(self, shape: str = "off") -> tuple[int, Figures]:
        """The fastest fixed length of a shape."""
        found = {int(n.split()[0][6:]): w for n, w in self.ways.items() if n.startswith("fixed:") and n.endswith(shape)}
        return max(found.items(), key=lambda item: item[1].speed)

    def oracle(self, shape: str = "off") -> Figures:
        """What knowing the outcomes gives: see this module."""
        known = [figures for name, figures in self.ways.items() if name.startswith("oracle ") and name.endswith(shape)]
        return max([*known, self.best_fixed(shape)[1]], key=lambda figures: figures.speed)

    def against_fixed(self, shape: str = "off") -> Ratio:
        """`rate` in a shape over the best fixed chain."""
        return Ratio.of(self.ways[f"rate {shape}"], self.best_fixed()[1])

    def against_oracle(self) -> Ratio:
        """`rate` over the oracle, as chains."""
        return Ratio.of(self.ways["rate off"], self.oracle())

    @property
    def misses(self) -> tuple[str, ...]:
        """Shapes in which `rate` is too slow, with a `?` where that is not sure."""
        found = []
        for shape, word in (("off", "chain"), ("on", "tree")):
            ratio = self.against_fixed(shape)
            if ratio.value < 1 - MARGIN:
                found.append(word + ("?" if ratio.value + 2 * ratio.error >= 1 - MARGIN else ""))
        return tuple(found)

    def as_json(self) -> dict[str, object]:
        """Plain data."""
        return {
            "cell": asdict(self.cell),
            "ways": {name: asdict(figures) | {"speed": figures.speed} for name, figures in self.ways.items()},
            "best_fixed": self.best_fixed()[0],
            "rate_over_best_fixed": asdict(self.against_fixed()),
            "default_over_best_fixed": asdict(self.against_fixed("on")),
            "rate_over_oracle": asdict(self.against_oracle()),
            "misses": self.misses,
        }


def run_cell(task: Task) -> Outcome:
    """Everything in one cell."""
    ways = [PLAIN, *(ours(f"fixed:{n}") for n in task.lengths), *(ours(name) for name in CONTROLLERS)]
    found = {way.name: measure(task.cell, way, task.effort) for way in ways}
    best, _ = Outcome(task.cell, found).best_fixed()
    for shape in SHAPES:
        wide = [ours("rate", shape), *(ours(f"fixed:{n}", shape) for n in sorted({best, max(task.lengths)}))]
        found |= {way.name: measure(task.cell, way, task.effort) for way in wide}
    found |= {f"oracle {way.name}": measure(task.cell, way, task.effort) for way in oracles()}
    return Outcome(task.cell, found)


def oracles() -> list[Way]:
    """The drafter that knows, as chain and as tree, with two ways to ship."""
    return [ours(draft, shape, "oracle") for shape in ("off", "on") for draft in ("fixed:16", "rate")]


# -- for a person ------------------------------------------------------------------------------------------------------

HEADER = (
    f"{'':32}{'':7} {'fixed chain':>12} | {'chain':^23} | {'4 siblings':^13} | {'tree':^13} | {'oracle':^13} | "
    f"{'of best fixed %':^20} | {'of':>6}\n"
    f"{'verifier, link, accuracy':32}{'plain':>7} {'best':>7}{'D':>5} | {'rate':>7} {'conf':>7} {'ucb':>7} | "
    f"{'fixed':>6} {'rate':>6} | {'fixed':>6} {'rate':>6} | {'chain':>6} {'tree':>6} | "
    f"{'chain':>5}{'':>4} {'tree':>6}{'':>4} | {'oracle':>6}"
)


def line_of(outcome: Outcome) -> str:
    """A row of the table: tokens/s, then `rate` in percent."""
    ways = outcome.ways
    length, best = outcome.best_fixed()
    shapes = [f"{outcome.best_fixed(s)[1].speed:6.2f} {ways[f'rate {s}'].speed:6.2f}" for s in SHAPES]
    chain, tree, ideal = outcome.against_fixed(), outcome.against_fixed("on"), outcome.against_oracle()
    return (
        f"{outcome.cell.name:32}{ways['plain'].speed:7.2f} {best.speed:7.2f}{length:5d} | "
        + " ".join(f"{ways[f'{name} off'].speed:7.2f}" for name in CONTROLLERS)
        + f" | {' | '.join(shapes)} | {outcome.oracle().speed:6.2f} {outcome.oracle('on').speed:6.2f} | "
        f"{100 * chain.value:5.1f}±{100 * chain.error:3.1f} {100 * tree.value:6.1f}±{100 * tree.error:3.1f} | "
        f"{100 * ideal.value:6.1f}" + ("  MISS " + " ".join(outcome.misses) if outcome.misses else "")
    )


def lengths_of(outcomes: Sequence[Outcome], lengths: Sequence[int]) -> str:
    """Tokens/s of every fixed chain."""
    lines = [f"{'tokens/s of fixed chains, D =':32}" + "".join(f"{n:7d}" for n in lengths)]
    for outcome in outcomes:
        speeds = [outcome.ways[ours(f"fixed:{n}").name].speed for n in lengths]
        lines.append(f"{outcome.cell.name:32}" + "".join(f"{speed:7.2f}" for speed in speeds))
    return "\n".join(lines)


def costs_of(outcomes: Sequence[Outcome]) -> str:
    """What the default, `rate` with a tree, and its chain cost per token."""
    lines = [
        f"{'rate: chain / tree, per token':32}{'AL':^13}{'steps':^13}{'rows':^13}{'sent':^13}{'proposals':^15}"
        f"{'up B':^13}{'down B':^13}{'verifier ms':^15}{'cached %':>9}{'saved':>7}{'calibration':>13}"
    ]
    for outcome in outcomes:
        chain, tree = outcome.ways["rate off"], outcome.ways["rate on"]
        lines.append(
            f"{outcome.cell.name:32}"
            + _pair(chain.acceptance_length, tree.acceptance_length)
            + _pair(chain.steps, tree.steps)
            + _pair(chain.rows, tree.rows)
            + _pair(chain.drafted, tree.drafted)
            + _pair(chain.proposals, tree.proposals, 15)
            + _pair(chain.up_bytes, tree.up_bytes, digits=0)
            + _pair(chain.down_bytes, tree.down_bytes, digits=0)
            + _pair(chain.verifier_ms, tree.verifier_ms, 15, 1)
            + f"{100 * tree.covered:9.1f}{tree.saved:7.2f}"
            + _pair(chain.calibration_error, tree.calibration_error, digits=3)
        )
    return "\n".join(lines)


def _pair(chain: float, tree: float, width: int = 13, digits: int = 2) -> str:
    return f"{f'{chain:.{digits}f} / {tree:.{digits}f}':^{width}}"


def summary_of(outcomes: Sequence[Outcome]) -> str:
    """Regrets of `rate`: mean and worst."""
    rows = (
        ("chain against the best fixed chain", [1 - o.against_fixed().value for o in outcomes]),
        ("tree against the best fixed chain", [1 - o.against_fixed("on").value for o in outcomes]),
        ("chain against the oracle", [1 - o.against_oracle().value for o in outcomes]),
        ("tree against the chain's oracle", [1 - Ratio.of(o.ways["rate on"], o.oracle()).value for o in outcomes]),
    )
    lines = []
    for words, regrets in rows:
        worst = max(range(len(regrets)), key=regrets.__getitem__)
        lines.append(
            f"regret of rate, {words:36} mean {100 * statistics.fmean(regrets):5.1f} %, "
            f"worst {100 * regrets[worst]:5.1f} % ({outcomes[worst].cell.name})"
        )
    missing = [o for o in outcomes if o.misses]
    sure = [o for o in missing if not all(word.endswith("?") for word in o.misses)]
    lines.append(f"{len(outcomes) - len(missing)} of {len(outcomes)} cells hold; {len(sure)} miss for sure")
    return "\n".join(lines)


# -- the command -------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Question`."""
    usual = Effort()
    parser.add_argument("--quick", action="store_true", help="four cells")
    parser.add_argument(
        "--cell", action="append", help="only cells whose name holds these words (a:b); may be repeated"
    )
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="fixed lengths [1 to 16]")
    parser.add_argument("--seeds", type=int, default=usual.seeds)
    parser.add_argument("--turns", type=int, default=usual.turns, help="answers of a run")
    parser.add_argument("--tokens", type=int, default=usual.tokens, help="of an answer; a recorded one has 91 or more")
    parser.add_argument("--free-run", default=usual.free_run, help="the verifier's policy")
    parser.add_argument("--jobs", type=int, default=len(usable_cores()), help="processes [one a core]")
    parser.add_argument("--json", type=Path, help="write all figures here too")


def run(args: argparse.Namespace) -> int:
    """See `Question`: 1 if a cell misses for sure."""
    effort = Effort(args.seeds, args.turns, args.tokens, args.free_run)
    lengths = _lengths(args.lengths)
    tasks = [Task(cell, effort, lengths) for cell in chosen(QUICK if args.quick else CELLS, args.cell or ())]
    began = time.monotonic()
    sys.stdout.write(HEADER + "\n")
    done: dict[Cell, Outcome] = {}
    for task, outcome in in_parallel(run_cell, tasks, args.jobs):
        done[task.cell] = outcome
        sys.stdout.write(line_of(outcome) + "\n")
        sys.stdout.flush()
        sys.stderr.write(f"{len(done)} of {len(tasks)} cells, {time.monotonic() - began:.0f} s\n")
    outcomes = [done[task.cell] for task in tasks]
    sys.stdout.write(
        "\n".join(("", lengths_of(outcomes, lengths), "", costs_of(outcomes), "", summary_of(outcomes), ""))
    )
    if args.json:
        args.json.write_text(json.dumps([o.as_json() for o in outcomes], indent=1) + "\n", encoding="utf-8")
    return 1 if any(not word.endswith("?") for o in outcomes for word in o.misses) else 0


def chosen(cells: Sequence[Cell], words: Sequence[str]) -> list[Cell]:
    """Those cells whose names hold all parts of one of `words`. Raises UsageError if there is none."""
    found = [c for c in cells if not words or any(set(each.split(":")) <= set(c.name.split()) for each in words)]
    if not found:
        raise UsageError(f"no cell is called {' or '.join(words)}: name words of a cell, as in a100-70b:gprs:.8")
    return found


def _lengths(text: str) -> tuple[int, ...]:
    try:
        lengths = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UsageError(f"--lengths {text}: give numbers from 1 to 16, separated by commas") from None
    if not lengths or not all(1 <= n <= 16 for n in lengths):
        raise UsageError(f"--lengths {text}: give numbers from 1 to 16, separated by commas")
    return lengths
