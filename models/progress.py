"""Progress of long work, told as plain numbers; who listens decides how it looks.

Work calls `report(stage, done, total)` as often as it likes. `done` and `total` are bytes; `total` is 0 while it is
unknown. A terminal gets bars, a log gets a line every few seconds, a library call gets nothing.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, int, int], None]

_log = logging.getLogger(__name__)
LINE_INTERVAL_S = 3.0


def silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""


class LineReport:
    """One line at the start and the end of a stage, and every few seconds between."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._stage = ""
        self._next_at = 0.0
        self._finished = False

    def __call__(self, stage: str, done: int, total: int) -> None:
        finished = total > 0 and done >= total
        if stage != self._stage:
            self._stage, self._finished = stage, False
        elif self._finished or (not finished and self._clock() < self._next_at):
            return
        self._finished = finished
        self._next_at = self._clock() + LINE_INTERVAL_S
        self._write(f"{stage}: {_amount(done, total)}")


def log_report() -> Report:
    """Lines in the log of this module, at level INFO."""
    return LineReport(lambda line: _log.info("%s", line))


@contextmanager
def terminal_report() -> Iterator[Report]:
    """Bars on stderr if it is a terminal, else lines on it."""
    if not sys.stderr.isatty():
        yield LineReport(lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201 - it is the output
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=None)
            bars.update(tasks[stage], completed=done, total=total or None)

        yield report


def megabytes(count: int) -> str:
    """A byte count for people: decimal megabytes."""
    return f"{count / 1e6:,.1f} MB"


def _amount(done: int, total: int) -> str:
    if not total:
        return megabytes(done) if done else "started"
    return f"{megabytes(done)} of {megabytes(total)} ({100 * done // total} %)"
