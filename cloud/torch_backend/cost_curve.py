"""How long a step of n rows takes here: measured once at start, on a short context."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

ROW_COUNTS = (1, 2, 4, 8, 16, 32, 64)
BUDGET_S = 1.5
"""Measuring stops when this is spent: large models get a shorter curve."""


def measured_curve(run: Callable[[int], None], most_rows: int) -> list[tuple[int, float]]:
    """(rows, seconds), both ascending, up to `most_rows`; `run(rows)` makes one step. The faster of two counts."""
    run(1)
    points: list[tuple[int, float]] = []
    slowest = 0.0
    for rows, seconds in _timed(run, most_rows):
        slowest = max(slowest, seconds)
        points.append((rows, slowest))
    return points


def _timed(run: Callable[[int], None], most_rows: int) -> Iterator[tuple[int, float]]:
    began = time.perf_counter()
    for rows in ROW_COUNTS:
        yield rows, min(_seconds(run, rows), _seconds(run, rows))
        if time.perf_counter() - began > BUDGET_S or rows * 2 > most_rows:
            return


def _seconds(run: Callable[[int], None], rows: int) -> float:
    began = time.perf_counter()
    run(rows)
    return time.perf_counter() - began
