"""How long does a session take to come back? Real processes over the shaped link, broken at every protocol point.

A replayed verifier stands behind the shaped link, with a breaker at either end of that. A trial runs one turn, breaks
something at a chosen moment, and compares the ids with the target's own. Time counts from the moment at which the link
(or the verifier) is back to the next new token, or to the turn's end.

    python -m acespec.bench.outages --json outages.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from acespec.bench.outage_stack import Verifier, way_to
from acespec.bench.outage_trial import POINTS, Bench, Trial
from acespec.bench.quiet import quiet
from acespec.models.replay_tokenizer import DEFAULT_VOCABULARY, replay_tokenizer

PROFILE = "h100-8b"
CUTS_S = (30.0, 10.0, 1.0)


async def run_cuts(
    bench: Bench, verifier: str, folder: Path, preset: str, cuts: Iterable[float], repeats: int, jobs: int
) -> list[Trial]:
    """Cuts of every length at every point, several at a time, each on a link of its own."""
    todo = [(seconds, point) for seconds in cuts for point in POINTS for _ in range(repeats)]
    trials: list[Trial] = []

    async def work(number: int) -> None:
        async with way_to(verifier, preset, folder, f"link{number}") as way:
            while todo:
                seconds, point = todo.pop(0)
                trials.append(await bench.cut(way, point, seconds, 2 * len(todo)))
                _tell(trials)

    async with asyncio.TaskGroup() as group:
        for number in range(min(jobs, len(todo))):
            group.create_task(work(number))
    return trials


async def run_replicas(
    bench: Bench, one: Verifier, other: Verifier, folder: Path, preset: str, repeats: int
) -> list[Trial]:
    """The verifier is killed and restarted; the client moves to another one."""
    trials: list[Trial] = []
    async with way_to(one.address, preset, folder, "replicas") as way:
        for seed in range(repeats):
            for point in POINTS:
                way.switch.target = one.address
                trials.append(await bench.restart(way, point, one, 1000 + 4 * seed))
                _tell(trials)
                trials.append(await bench.move(way, point, other.address, 1002 + 4 * seed))
                _tell(trials)
    return trials


def _tell(trials: list[Trial]) -> None:
    last = trials[-1]
    what = f"{last.kind} {last.cut_s:.0f} s" if last.cut_s else last.kind
    exact = "" if last.exact else ", WRONG IDS"
    sys.stderr.write(f"{len(trials):4} {what} at {last.point}: back after {last.recovery_s:.2f} s{exact}\n")


def table(trials: list[Trial]) -> list[str]:
    """A line for each kind of break, and one for each point of it."""
    lines = [f"{'what':24} {'trials':>6} {'exact':>6} {'p50 s':>7} {'p95 s':>7} {'max s':>7} {'new streams':>12}"]
    for kind, cut_s in dict.fromkeys((t.kind, t.cut_s) for t in trials):
        ours = [t for t in trials if (t.kind, t.cut_s) == (kind, cut_s)]
        lines.append(_line(f"{kind} {cut_s:.0f} s" if cut_s else kind, ours))
        lines += [_line(f"  at {point}", part) for point in POINTS if (part := [t for t in ours if t.point == point])]
    return lines


def _line(what: str, trials: list[Trial]) -> str:
    times = sorted(t.recovery_s for t in trials)
    exact, streams = sum(t.exact for t in trials), sum(t.reconnects for t in trials) / len(trials)
    p50, p95 = _quantile(times, 0.5), _quantile(times, 0.95)
    return f"{what:24} {len(trials):6} {exact:6} {p50:7.2f} {p95:7.2f} {times[-1]:7.2f} {streams:12.1f}"


def _quantile(ordered: list[float], share: float) -> float:
    """The smallest of them that at least that share does not exceed."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def main() -> int:
    """Entry point; 1 if an id was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="wan50")
    parser.add_argument("--profile", default=PROFILE, help="whose times the verifiers have")
    parser.add_argument("--cut", type=float, action="append", help="seconds without signal; may be repeated")
    parser.add_argument("--repeats", type=int, default=4, help="trials of each kind at each point")
    parser.add_argument("--jobs", type=int, default=6, help="cuts side by side")
    parser.add_argument("--only", choices=("cuts", "replicas"), help="half of the table")
    parser.add_argument("--json", type=Path, help="write every trial here")
    args = parser.parse_args()
    began = time.monotonic()
    bench = Bench(replay_tokenizer(DEFAULT_VOCABULARY))
    options = ["--backend", "replay", "--profile", args.profile, "--free-run", "always"]
    with (
        quiet(logging.ERROR),
        tempfile.TemporaryDirectory(prefix="acespec-outages-") as name,
        Verifier.running(Path(name), "one", options) as one,
        Verifier.running(Path(name), "other", options) as other,
    ):
        cuts = args.cut or CUTS_S
        trials: list[Trial] = []
        if args.only != "replicas":
            trials += asyncio.run(run_cuts(bench, one.address, Path(name), args.preset, cuts, args.repeats, args.jobs))
        if args.only != "cuts":
            trials += asyncio.run(run_replicas(bench, one, other, Path(name), args.preset, args.repeats))
    sys.stdout.write("\n".join(table(trials)) + "\n")
    sys.stderr.write(f"{len(trials)} trials in {time.monotonic() - began:.0f} s\n")
    if args.json:
        args.json.write_text(json.dumps([asdict(trial) for trial in trials], indent=2) + "\n", encoding="utf-8")
    return 0 if all(trial.exact for trial in trials) else 1


if __name__ == "__main__":
    sys.exit(main())
