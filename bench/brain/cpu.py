"""Processor time of the edge's brain for each committed token: `python -m acespec.bench.brain cpu [--json FILE]`.

First in the world, for shapes and controllers against plain decoding: what the session's own methods take, by part.
Then by size of the tree, kept full (`steady_tree.py`), and by idea: tree, estimates, pricing, coding. The time of the
drafter, the link and the verifier is not in it.
Each cell is run a few times, and the fastest counts: whatever else the machine does only adds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from acespec.bench.brain.cpu_shares import shares
from acespec.bench.brain.steady_tree import TOKENS_A_STEP, SteadyTree
from acespec.bench.brain.stopwatch import PARTS, Spent, brain_time
from acespec.sim.world.scenario import LinkChoice, LoadSpec, Scenario, StrategySpec, TargetSpec
from acespec.sim.world.world import run as run_world

PROFILES = ("a100-70b", "h100-70b-fp8")
BRAINS = {
    "plain": StrategySpec("plain"),
    "rate, chain": StrategySpec("ours", {"draft": "rate", "tree": "off"}),
    "rate, siblings:4": StrategySpec("ours", {"draft": "rate", "tree": "siblings:4"}),
    "rate, tree": StrategySpec("ours", {"draft": "rate", "tree": "on"}),
    "fixed:16, tree": StrategySpec("ours", {"draft": "fixed:16", "tree": "on"}),
}
SHARED = "rate, tree"
"""The brain whose time is shown by idea, too."""
SIZES = (16, 64, 256, 1024)
STEPS = 60
"""Commits of a run with a full tree."""
WARM_UP_TOKENS = 60


@dataclass(frozen=True, slots=True)
class Cost:
    """One cell.

    Attributes:
        ms: for each committed token, by part.
        total_ms: of all parts.
        guesses: handed in by the drafter for each committed token.
        us_a_guess: microseconds of `drafted` for each of them.
        nodes: mean size of the tree, and `peak` the largest.
        tokens: committed.
    """

    name: str
    ms: dict[str, float]
    total_ms: float
    guesses: float
    us_a_guess: float
    nodes: float
    peak: int
    tokens: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--tokens", type=int, default=400, help="committed in each run of the world (default %(default)s)"
    )
    parser.add_argument("--runs", type=int, default=3, help="of each cell; the fastest counts (default %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, metavar="NODES", help="of the full trees")
    parser.add_argument("--link", default="wan50", help="preset of the world's link (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    in_the_world(brain_scenario(PROFILES[0], args.link, WARM_UP_TOKENS, SHARED))
    tables = {
        f"{profile}, {args.link}": [
            _best_of(args.runs, brain, partial(in_the_world, brain_scenario(profile, args.link, args.tokens, brain)))
            for brain in BRAINS
        ]
        for profile in PROFILES
    }
    tables["a full tree"] = [_best_of(args.runs, f"{n} nodes", partial(with_full_tree, n)) for n in args.sizes]
    for title, costs in tables.items():
        _show(title, costs)
    by_idea = {
        f"{profile}, {SHARED}": shares(brain_scenario(profile, args.link, args.tokens, SHARED)) for profile in PROFILES
    }
    for title, parts in by_idea.items():
        sys.stdout.write(f"{title}: " + ", ".join(f"{idea} {share:.0%}" for idea, share in parts.items()) + "\n")
    if args.json is not None:
        rows = {title: [asdict(cost) for cost in costs] for title, costs in tables.items()}
        args.json.write_text(json.dumps({"costs": rows, "shares": by_idea}, indent=1) + "\n")
    return 0


def in_the_world(scenario: Scenario) -> Spent:
    """What the brains of a world's edges take in all."""
    spent = Spent()
    with brain_time(spent):
        run_world(scenario)
    return spent


def with_full_tree(nodes: int, steps: int = STEPS) -> Spent:
    """What a brain takes for `steps` commits while it holds about `nodes` guesses."""
    tree, spent = SteadyTree(nodes), Spent()
    tree.begin(steps * TOKENS_A_STEP + nodes)
    for _ in range(steps):
        tree.fill()
        with brain_time(spent):
            tree.draft()
            tree.commit()
    return spent


def brain_scenario(profile: str, link: str, tokens: int, brain: str) -> Scenario:
    """One user, whom the verifier gives all that it has. `brain` is one of BRAINS."""
    return Scenario(
        duration_s=600.0,
        link=LinkChoice(link),
        target=TargetSpec(profile=profile, target_rate=0.0),
        load=LoadSpec(tokens=tokens),
        strategy=BRAINS[brain],
    )


def _best_of(runs: int, name: str, measure: Callable[[], Spent]) -> Cost:
    sys.stderr.write(f"{name}\n")
    best = min((measure() for _ in range(runs)), key=lambda spent: spent.total_s)
    tokens = max(1, best.tokens)
    return Cost(
        name,
        {part: 1e3 * seconds / tokens for part, seconds in best.seconds.items()},
        1e3 * best.total_s / tokens,
        best.guesses / tokens,
        1e6 * best.seconds["drafted"] / max(1, best.guesses),
        best.nodes,
        best.peak,
        tokens,
    )


def _show(title: str, costs: Sequence[Cost]) -> None:
    heads = "".join(f"{part:>9}" for part in PARTS)
    sys.stdout.write(f"{title}: ms a committed token\n{'':18}{heads}{'all':>9}{'guesses':>9}{'nodes':>8}{'peak':>6}\n")
    for cost in costs:
        parts = "".join(f"{cost.ms[part]:9.3f}" for part in PARTS)
        sys.stdout.write(
            f"{cost.name:18}{parts}{cost.total_ms:9.3f}{cost.guesses:9.1f}{cost.nodes:8.1f}{cost.peak:6d}\n"
        )
