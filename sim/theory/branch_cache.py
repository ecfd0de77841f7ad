"""A tree at the edge that already holds the draft after the correction: AceSpec and SSD.

`F` is the fan-out: F[k] alternatives to the chain's token after k kept drafts, k = 0 .. D; F[D] prepares for the bonus
token. `B` is the tree's budget in nodes; D of them are the chain, B - D the branches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from acespec.proto.errors import UsageError
from acespec.sim.theory.acceptance import Acceptance, checked_rate, rate_at, survivals, tokens_per_step
from acespec.sim.theory.costs import Costs


@dataclass(frozen=True, slots=True)
class Tail:
    """How the corrected token falls among the drafter's likeliest: R(F) = 1 - c F^-b, b > 0 and 0 <= c <= 1."""

    b: float = 1.0
    c: float = 0.5

    def __post_init__(self) -> None:
        if self.b <= 0 or not 0.0 <= self.c <= 1.0:
            raise UsageError(f"tail b={self.b}, c={self.c}: b must be above 0 and c between 0 and 1")

    def hit(self, F: float) -> float:
        """R(F), 0 if F < 1: the chance that the corrected token is in the top F (AceSpec, arXiv 2609.02514)."""
        return 0.0 if F < 1.0 else 1.0 - self.c * F**-self.b

    def coverage(self, a: float, F: float) -> float:
        """kappa = 1 - (1 - a) c F^-b, derived (form 8): the next target token is the chain's or in the top F beside
        it; `a` if F < 1."""
        return 1.0 - (1.0 - checked_rate(a)) * (1.0 - self.hit(F))


def eta(a: float, b: float) -> float:
    """eta = a^(1/(1+b)), the ratio of neighbouring fan-outs (AceSpec, arXiv 2609.02514; SSD, 2603.03251)."""
    return math.pow(checked_rate(a), 1.0 / (1.0 + b))


def geometric_fan_out(branches: float, ratio: float, depths: int) -> tuple[float, ...]:
    """F_k = n (1 - r)/(1 - r^depths) r^k, k < `depths`: `branches` n shared in the ratio r (AceSpec, arXiv
    2609.02514). It sums to n."""
    powers = [ratio**k for k in range(depths)]
    unit = branches / sum(powers)
    return tuple(unit * power for power in powers)


def acespec_fan_out(B: float, D: int, a: float, b: float) -> tuple[float, ...]:
    """F_k = (B - D)(1 - eta)/(1 - eta^D) eta^k, k < D, nothing for the bonus (AceSpec, arXiv 2609.02514). D values."""
    return geometric_fan_out(B - D, eta(a, b), D)


def ssd_fan_out(F_0: float, D: int, a: float, b: float) -> tuple[float, ...]:
    """F_0 eta^k, k < D, and F_D = F_0 eta^D (1 - a)^(-1/(1+b)), a < 1 (SSD, arXiv 2603.03251). D + 1 values."""
    return tuple(F_0 * share for share in _shares(D, a, b))


def best_first_fan_out(B: float, D: int, a: float, b: float) -> float:
    """F_0 = (B - D)/[(1 - eta^D)/(1 - eta) + eta^D (1 - a)^(-1/(1+b))], derived: with SSD's law it maximises P_hit at
    budget B, as long as every F_k >= 1."""
    return (B - D) / sum(_shares(D, a, b))


def best_fan_out(B: float, D: int, a: float, b: float) -> tuple[float, ...]:
    """SSD's law from the best F_0, derived: D + 1 values that sum to B - D."""
    return ssd_fan_out(best_first_fan_out(B, D, a, b), D, a, b)


def hit_probability(a: Acceptance, F: Sequence[float], tail: Tail, chain_goes_on: bool = True) -> float:
    """P_hit = sum_(k<D) S_k (1 - a_(k+1)) R(F_k) + S_D R_D(F_D), derived; F has D + 1 values.

    One outcome a round, so a sum and not AceSpec's product over depths. The bonus token is drawn from p, not from the
    residual: where the chain goes on past D its own continuation counts, and R_D = max(a, R(F_D)); else R(F_D).
    """
    D = len(F) - 1
    kept = (1.0, *survivals(a, D))
    rejected = sum((kept[k] - kept[k + 1]) * tail.hit(F[k]) for k in range(D))
    bonus = max(rate_at(a, D + 1) if chain_goes_on else 0.0, tail.hit(F[D]))
    return rejected + kept[D] * bonus


def branch_cache_ms(costs: Costs, a: Acceptance, D: int, tree_ms: float, p_hit: float) -> float:
    """T = [max(T_tree, C) + (1 - P_hit) D t_d]/E, derived (form 5): a miss costs one redraft; T >= C/E always."""
    return branch_cache_cycle_ms(costs, D, tree_ms, p_hit) / tokens_per_step(a, D)


def branch_cache_cycle_ms(costs: Costs, D: int, tree_ms: float, p_hit: float) -> float:
    """max(T_tree, C) + (1 - P_hit) D t_d per round, derived from AceSpec's own algorithm (arXiv 2609.02514)."""
    return max(tree_ms, costs.C) + (1.0 - p_hit) * D * costs.t_d


def acespec_cycle_ms(costs: Costs, tree_ms: float, p_hit: float, redraft_ms: float) -> float:
    """max(T_tree, C) + (1 - P_hit)(RTT + T_redraft) per round, as AceSpec prints it (arXiv 2609.02514): a miss is
    charged a round trip that its algorithm does not make."""
    return max(tree_ms, costs.C) + (1.0 - p_hit) * (costs.R + redraft_ms)


def tree_budget(tree_ms: Callable[[int], float], costs: Costs, most: int) -> int:
    """B* = min(B_max, floor(T_tree^-1(RTT + t_v))) (AceSpec, arXiv 2609.02514): the largest tree of at most `most`
    nodes that `tree_ms`, which rises with its argument, finishes by then; 0 if none does."""
    fits, too_big = 0, most + 1
    while too_big - fits > 1:
        middle = (fits + too_big) // 2
        if tree_ms(middle) <= costs.R + costs.t_v:
            fits = middle
        else:
            too_big = middle
    return fits


def _shares(D: int, a: float, b: float) -> tuple[float, ...]:
    """F_k / F_0 of SSD's law; the chance of a rejection must not be nil, as F_D would be infinite."""
    if checked_rate(a) == 1.0:
        raise UsageError("acceptance is 1: nothing is ever rejected, so no fan-out law applies")
    ratio = eta(a, b)
    return (*(ratio**k for k in range(D)), ratio**D * (1.0 - a) ** (-1.0 / (1.0 + b)))
