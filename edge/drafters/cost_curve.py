"""What a draft model's forward pass costs on this machine, measured once at the start.

The time of one row is t_d of the rate rule; the times of several rows say what catching up after a commit costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from acespec.edge.drafters.base import never
from acespec.edge.drafters.logit_source import LogitSource

BUDGET_S = 0.3
"""Measuring stops before it delays the first draft by more than about this, once one row has been timed."""
_WIDTHS = (2, 4, 8)
_SINGLES = 3
_ANY_ID = 1


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Seconds of one forward pass by its number of new ids, for the widths that were measured; 1 is always there."""

    points: tuple[tuple[int, float], ...]

    def seconds(self, rows: int) -> float:
        """The time of a pass over `rows` new ids: linear between and beyond the measured widths."""
        below = above = self.points[0]
        for point in self.points:
            below, above = above, point
            if point[0] >= rows:
                break
        if above[0] == below[0]:
            return above[1] * rows / above[0]
        slope = (above[1] - below[1]) / (above[0] - below[0])
        return max(above[1] + slope * (rows - above[0]), self.points[0][1])

    def __str__(self) -> str:
        return "a forward pass takes " + ", ".join(f"{1000 * s:.3g} ms for {n}" for n, s in self.points)


def measure_costs(
    source: LogitSource, clock: Callable[[], float] = time.monotonic, budget_s: float = BUDGET_S
) -> CostCurve:
    """Time `source` over short dummy paths. The quickest of a few single rows counts, since noise only adds."""
    path = [_ANY_ID]
    source.logits_after(path, never)  # The first pass also allocates and compiles.
    began = clock()

    def timed(rows: int) -> float:
        path.extend([_ANY_ID] * rows)
        start = clock()
        source.logits_after(path, never)
        return clock() - start

    single = timed(1)
    for _ in range(_SINGLES - 1):
        if clock() - began + single > budget_s:
            break
        single = min(single, timed(1))
    points = [(1, single)]
    for rows in _WIDTHS:
        # At worst every row costs as much as one alone.
        if clock() - began + rows * single > budget_s:
            break
        points.append((rows, timed(rows)))
    return CostCurve(tuple(points))
