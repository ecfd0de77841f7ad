"""Random times from a seeded stream: what the generators of rates and outages share.

Only `Random.random()` is used, whose sequence Python promises to keep; times are whole milliseconds, so that the last
bit of a platform's logarithm does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from acespec.sim.units import MILLISECOND


def exponential_ns(stream: Random, mean_s: float) -> int:
    """An exponential time of that mean, in ns: whole milliseconds, at least one."""
    return max(1, round(-math.log(1.0 - stream.random()) * mean_s * 1000)) * MILLISECOND


def weighted_index(stream: Random, weights: Sequence[float]) -> int:
    """An index, with a chance in proportion to its weight."""
    mark = stream.random() * math.fsum(weights)
    for index, weight in enumerate(weights):
        mark -= weight
        if mark < 0:
            return index
    return len(weights) - 1
