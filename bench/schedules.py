"""Does the protocol survive? Random schedules over real state machines in virtual time, with every fault we know of.

    python -m acespec.bench.schedules --count 100000

The exit status is 1 if one fails; it is made small and printed as a script that `--script FILE` runs again.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path

from acespec.bench.quiet import quiet
from acespec.sim.rehearsal import rehearse
from acespec.sim.schedule import Schedule, parse_schedule
from acespec.sim.schedule_dice import random_schedule
from acespec.sim.shrink import shrink

PROGRESS_S = 20.0


def run_seeds(first: int, count: int, most_faults: int) -> Schedule | None:
    """Rehearse the schedules of `count` seeds; the first that fails, made small, or None."""
    started, told = time.process_time(), time.monotonic()
    for seed in range(first, first + count):
        schedule = random_schedule(seed, most_faults=most_faults)
        if (fault := rehearse(schedule)) is not None:
            sys.stderr.write(f"seed {seed}: {fault}\n")
            return shrink(schedule, lambda smaller: rehearse(smaller) is not None)
        now = time.monotonic()
        if now - told >= PROGRESS_S:
            told, done = now, seed + 1 - first
            each = (time.process_time() - started) / done
            sys.stderr.write(f"{done} of {count} schedules, {each * 1e3:.1f} ms of CPU each\n")
    sys.stderr.write(f"{count} schedules from seed {first} on: {time.process_time() - started:.0f} s of CPU\n")
    return None


def _run_script(path: Path) -> Schedule | None:
    schedule = parse_schedule(path.read_text(encoding="utf-8"))
    return schedule if rehearse(schedule) is not None else None


def main() -> int:
    """Entry point; 1 if a schedule fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="how many schedules")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--most-faults", type=int, default=5, help="faults in one schedule, at most")
    parser.add_argument("--script", type=Path, help="run the one schedule in this file instead")
    args = parser.parse_args()
    with quiet(logging.CRITICAL):  # Detached edges and the like are what is rehearsed.
        failing = _run_script(args.script) if args.script else run_seeds(args.first, args.count, args.most_faults)
    if failing is not None:
        sys.stdout.write(f"# {rehearse(failing)}\n{failing}\n")
        return 1
    sys.stdout.write("every schedule held\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
