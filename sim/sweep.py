"""Runs the cells of a sweep in several processes. What is done stays done, whatever becomes of the rest."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path

from acespec.sim.sweep_file import Cell, Sweep
from acespec.sim.sweep_store import SweepStore
from acespec.sim.world.scenario import Scenario
from acespec.sim.world.world import run

POLL_S = 0.25
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

Progress = Callable[[float], None]
"""Hears how many cells' worth of work is done; parts of cells count."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a sweep went: cells that were there already, that were run, and that failed (with the reason)."""

    kept: int
    ran: int
    failed: tuple[tuple[Cell, str], ...]


def run_sweep(sweep: Sweep, store: SweepStore, *, jobs: int, progress: Progress | None = None) -> Outcome:
    """Run what `store` does not hold yet.

    Raises:
        KeyboardInterrupt: after Ctrl-C, once the running cells have stopped; what is done is kept.
    """
    todo = [cell for cell in sweep.cells if not store.holds(cell)]
    tell = progress or (lambda done: None)
    kept = len(sweep.cells) - len(todo)
    tell(kept)
    if not todo:
        return Outcome(kept, 0, ())
    failed: list[tuple[Cell, str]] = []
    with _pool(min(jobs, len(todo))) as pool:
        waiting = {pool.submit(cell.scenario, store.folder): cell for cell in todo}
        while waiting:
            ended, _ = wait(waiting, timeout=POLL_S, return_when=FIRST_COMPLETED)
            for future in ended:
                cell = waiting.pop(future)
                if (error := future.exception()) is not None:
                    failed.append((cell, _recorded(store, cell, error)))
            tell(kept + pool.cells_done())
    return Outcome(kept, len(todo) - len(failed), tuple(sorted(failed, key=lambda pair: pair[0].point)))


def _recorded(store: SweepStore, cell: Cell, error: BaseException) -> str:
    """Why a cell failed, in one line; the traceback is kept."""
    if isinstance(error, BrokenProcessPool):
        return "a process of the sweep died (out of memory?): run again with fewer --jobs"
    store.keep_failure(cell.scenario, "".join(traceback.format_exception(error)))
    return str(error).partition("\n")[0] or type(error).__name__


class _Pool:
    """Worker processes that stop in the middle of a cell when told to."""

    def __init__(self, jobs: int) -> None:
        context = get_context("spawn")
        self._stop: Event = context.Event()
        self._done: Synchronized[float] = context.Value("d", 0.0)
        self._executor = ProcessPoolExecutor(jobs, context, _begin_worker, (self._stop, self._done))

    def submit(self, scenario: Scenario, folder: Path) -> Future[None]:
        return self._executor.submit(_run_cell, scenario, folder)

    def cells_done(self) -> float:
        return self._done.value

    def close(self, stop: bool) -> None:
        if stop:
            self._stop.set()
        self._executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _pool(jobs: int) -> Iterator[_Pool]:
    """SIGTERM ends a sweep as Ctrl-C does: no worker is left behind."""
    before = os.environ.copy()
    os.environ.update(ONE_THREAD)  # Workers inherit it; their NumPy is not loaded yet.
    handler = signal.signal(signal.SIGTERM, _interrupt)
    pool = _Pool(jobs)
    stop = True
    try:
        yield pool
        stop = False
    finally:
        pool.close(stop)
        signal.signal(signal.SIGTERM, handler)
        for name in ONE_THREAD:
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


# -- in the worker processes -------------------------------------------------------------------------------------------


class _Stopped(Exception):
    """The sweep is being ended."""


@dataclass(slots=True)
class _Worker:
    stop: Event
    done: Synchronized[float]


_WORKERS: list[_Worker] = []
"""This process's own, once it is a worker."""


def _begin_worker(stop: Event, done: Synchronized[float]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches us too: the parent decides.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _WORKERS.append(_Worker(stop, done))


def _run_cell(scenario: Scenario, folder: Path) -> None:
    """Run it and keep the result."""
    worker, store = _WORKERS[0], SweepStore(folder)
    reached = 0.0

    def progress(share: float) -> None:
        nonlocal reached
        if worker.stop.is_set():
            raise _Stopped
        with worker.done.get_lock():
            worker.done.value += share - reached
        reached = share

    try:
        store.keep(scenario, run(scenario, progress))
    finally:
        with worker.done.get_lock():
            worker.done.value += 1.0 - reached


def usable_cores() -> Sequence[int]:
    """Cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
