"""The ratio of two interleaved measurements, with an interval: Student's t on the logarithms of paired ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

T_95 = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)
"""Two-sided 95 % quantiles of Student's t by degrees of freedom; beyond the table 2.131 serves up to infinity."""
T_BEYOND = 2.131


@dataclass(frozen=True, slots=True)
class Interval:
    """Geometric mean of paired ratios and its 95 % confidence interval."""

    mean: float
    low: float
    high: float
    pairs: int


def ratio_interval(ratios: Sequence[float]) -> Interval:
    """The interval of at least one positive ratio; of one alone it is unbounded."""
    logs = [math.log(ratio) for ratio in ratios]
    mean, freedom = statistics.fmean(logs), len(logs) - 1
    if freedom == 0:
        return Interval(math.exp(mean), 0.0, math.inf, 1)
    quantile = T_95[freedom] if freedom < len(T_95) else T_BEYOND
    half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))
