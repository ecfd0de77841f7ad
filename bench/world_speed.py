"""How fast the world runs: `python -m acespec.bench.world_speed [--cells 60:15 1000:3 ..] [--json]`.

Edges that draft all the time (`ours`, free run `never`, 10 tokens/s, `wan50`, an 8B model on an H100) with the real
session, controller, codec and scheduler objects. Events per second of CPU time of the one process, so that other load
counts little; the share of that time that each folder of the code takes comes from a second, profiled run of the first
cell (`--profile`).
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace

from acespec.sim.world.scenario import Scenario, scenario_from
from acespec.sim.world.world import run

CELLS = ("60:15", "100:12", "300:6", "1000:3")
"""EDGES:SECONDS of virtual time."""
PARTS = ("sim", "edge", "cloud", "proto")


@dataclass(frozen=True, slots=True)
class Speed:
    """One cell; CPU seconds of this process, its largest resident memory so far in MB."""

    edges: int
    virtual_s: float
    events: int
    tokens: int
    cpu_s: float
    events_per_s: float
    us_per_event: float
    memory_mb: float
    digest: str


def scenario(edges: int, seconds: float) -> Scenario:
    """Everybody talks for the whole time."""
    return scenario_from(
        {
            "duration_s": seconds,
            "load": {"edges": edges, "tokens": 4000, "start_spread_s": min(5.0, seconds / 4)},
            "target": {"profile": "h100-8b", "free_run": "never", "target_rate": 10},
            "drafter": {"token_ms": 5.0},
        }
    )


def measure(edges: int, seconds: float) -> Speed:
    """Run one cell."""
    began = time.process_time()
    result = run(scenario(edges, seconds))
    cpu_s = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    per_second = result.events / cpu_s
    return Speed(
        edges, seconds, result.events, result.tokens, cpu_s, per_second, 1e6 / per_second, memory, result.digest
    )


def shares(edges: int, seconds: float) -> dict[str, float]:
    """Share of a profiled run's own time by folder of the code; the rest is Python's library."""
    profile = cProfile.Profile()
    profile.runcall(run, scenario(edges, seconds))
    spent: Counter[str] = Counter()
    for (file, _, _), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        part = next((name for name in PARTS if f"/{name}/" in file), "library")
        spent[part] += own
    total = sum(spent.values())
    return {part: own / total for part, own in spent.most_common()}


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", nargs="+", default=CELLS, metavar="EDGES:SECONDS")
    parser.add_argument("--profile", action="store_true", help="run the first cell again under a profiler")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    cells = [(int(edges), float(seconds)) for edges, _, seconds in (cell.partition(":") for cell in options.cells)]
    run(replace(scenario(2, 1.0), name="warm-up"))
    speeds = []
    for edges, seconds in cells:
        sys.stderr.write(f"{edges} edges, {seconds:g} s of virtual time\n")
        speeds.append(measure(edges, seconds))
    parts = shares(*cells[0]) if options.profile else {}
    if options.json:
        sys.stdout.write(json.dumps({"cells": [asdict(speed) for speed in speeds], "shares": parts}, indent=1) + "\n")
        return 0
    sys.stdout.write("| edges | virtual s | events | tokens | CPU s | events/s | us an event | memory MB |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|---|\n")
    for s in speeds:
        sys.stdout.write(
            f"| {s.edges:,} | {s.virtual_s:g} | {s.events:,} | {s.tokens:,} | {s.cpu_s:.1f} | {s.events_per_s:,.0f} "
            f"| {s.us_per_event:.0f} | {s.memory_mb:.0f} |\n"
        )
    for part, share in parts.items():
        sys.stdout.write(f"{part}: {share:.0%} of the time of the first cell, profiled\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
