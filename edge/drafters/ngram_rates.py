"""The kinds of guesses an n-gram drafter makes, and how sure each kind is to begin with.

A guess from the own context is told apart by how many ids agree, whether another token followed the same context, and
what the table says of it; a guess from the table by its blended probability. Greedy and sampled turns are kept apart:
the same copy is worth less when the target rolls dice.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import IntEnum

from acespec.edge.drafters.calibration import Calibration

_LENGTH_EDGES = (3, 4, 5, 8, 16, 32)
_LENGTH_PRIORS = (0.25, 0.40, 0.50, 0.60, 0.75, 0.85, 0.92)
_MASS_EDGES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85)
_MASS_PRIORS = (0.03, 0.07, 0.15, 0.27, 0.42, 0.60, 0.77, 0.90)
_SAMPLED_DISCOUNT = 0.75


class Verdict(IntEnum):
    """What the table says of a token that the own context proposes."""

    SILENT = 0
    AGREES = 1
    DIFFERS = 2


def own_cell(length: int, contested: bool, verdict: Verdict, greedy: bool) -> int:
    """The cell of a guess from the own context."""
    bucket = bisect_right(_LENGTH_EDGES, length)
    return ((bucket * 2 + contested) * len(Verdict) + verdict) * 2 + greedy


def table_cell(mass: float, greedy: bool) -> int:
    """The cell of a guess from the table."""
    return _OWN_CELLS + bisect_right(_MASS_EDGES, mass) * 2 + greedy


def fresh_rates() -> Calibration:
    """A calibration of all cells that has seen nothing."""
    own = [
        _discounted(_own_prior(prior, contested, verdict), greedy)
        for prior in _LENGTH_PRIORS
        for contested in (False, True)
        for verdict in Verdict
        for greedy in (False, True)
    ]
    table = [_discounted(prior, greedy) for prior in _MASS_PRIORS for greedy in (False, True)]
    return Calibration(own + table)


def _own_prior(prior: float, contested: bool, verdict: Verdict) -> float:
    prior *= 0.6 if contested else 1.0
    if verdict is Verdict.AGREES:
        return (1 + prior) / 2
    return prior * 0.7 if verdict is Verdict.DIFFERS else prior


def _discounted(prior: float, greedy: bool) -> float:
    return prior if greedy else prior * _SAMPLED_DISCOUNT


_OWN_CELLS = len(_LENGTH_PRIORS) * 2 * len(Verdict) * 2
