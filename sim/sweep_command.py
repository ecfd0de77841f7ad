"""The body of `acespec-sim sweep`: a bar on stderr, the cells in a folder, and what failed by name."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from acespec.proto.errors import AcespecError
from acespec.sim.sweep import Outcome, Progress, run_sweep, usable_cores
from acespec.sim.sweep_file import Cell, Sweep, read_sweep
from acespec.sim.sweep_store import SweepStore

OFTEN_S = 0.1
SELDOM_S = 10.0
MOST_NAMED = 20


class CellsFailed(AcespecError):
    """Some cells of a sweep came to nothing; the others are kept."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """See the options of the command; `jobs` None takes all cores."""

    sweep: Path
    settings: tuple[str, ...] = ()
    jobs: int | None = None
    out: Path | None = None
    command: tuple[str, ...] = ()


def sweep_command(options: SweepOptions) -> str:
    """What to print.

    Raises:
        UsageError: the sweep makes no sense, or its folder cannot be written.
        CellsFailed: names the cells and what to do.
        KeyboardInterrupt: what is done is kept, and the way on has been said.
    """
    sweep = read_sweep(options.sweep, options.settings)
    folder = options.out or Path(sweep.name)
    store = SweepStore(folder)
    store.prepare(sweep, options.command)
    began = time.monotonic()
    try:
        with _bar(sweep) as progress:
            outcome = run_sweep(sweep, store, jobs=options.jobs or len(usable_cores()), progress=progress)
    except KeyboardInterrupt:
        done = sum(map(store.holds, sweep.cells))
        sys.stderr.write(
            f"stopped: {done} of {len(sweep.cells)} cells are kept in {folder}; the same command goes on\n"
        )
        raise
    if outcome.failed:
        raise CellsFailed(_failures(outcome, folder))
    return _summary(sweep, outcome, folder, time.monotonic() - began)


def _summary(sweep: Sweep, outcome: Outcome, folder: Path, seconds: float) -> str:
    kept = f"{outcome.kept} were there already, " if outcome.kept else ""
    return (
        f"{len(sweep.cells)} cells in {folder}: {kept}{outcome.ran} run in {seconds:.1f} s\n"
        f"acespec-sim plot {folder}\n"
        f"acespec-sim report {folder}"
    )


def _failures(outcome: Outcome, folder: Path) -> str:
    def named(cell: Cell, reason: str) -> str:
        return f"  {cell.name}: {reason}"

    lines = [named(cell, reason) for cell, reason in outcome.failed[:MOST_NAMED]]
    if (more := len(outcome.failed) - MOST_NAMED) > 0:
        lines.append(f"  and {more} more")
    head = f"{len(outcome.failed)} cells failed; the others are kept, and the same command tries these again"
    return "\n".join([f"{head} (tracebacks: {folder}/cells/*.error)", *lines])


@contextmanager
def _bar(sweep: Sweep) -> Iterator[Progress]:
    from tqdm import tqdm

    often = OFTEN_S if sys.stderr.isatty() else SELDOM_S
    form = "{desc}: {n:.1f} of {total} cells |{bar}| {elapsed}, {remaining} left"
    with tqdm(
        desc=sweep.name, total=len(sweep.cells), mininterval=often, leave=False, file=sys.stderr, bar_format=form
    ) as bar:

        def progress(done: float) -> None:
            bar.update(done - bar.n)

        yield progress
