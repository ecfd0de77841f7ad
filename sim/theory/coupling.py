"""How often a draft can be right: total variation, draws that share their noise, certificates for a truncated target.

Distributions are sequences of probabilities over the same tokens, p the target's and q the drafter's.
"""

from __future__ import annotations

from collections.abc import Sequence


def total_variation(p: Sequence[float], q: Sequence[float]) -> float:
    """TV = sum max(0, p - q), for distributions that each sum to 1 (definition)."""
    return excess(p, q)


def excess(p: Sequence[float], q: Sequence[float]) -> float:
    """Z = sum of max(0, p - q) over the tokens given (definition; AsymSpec, arXiv 2608.04974)."""
    return sum(max(0.0, target - draft) for target, draft in zip(p, q, strict=True))


def optimal_acceptance(tv: float) -> float:
    """1 - TV: the most that any lossless rule accepts, reached by rejection sampling (definition)."""
    return 1.0 - tv


def coupling_match(p: Sequence[float], q: Sequence[float]) -> float:
    """Pr[match] = sum_j 1/sum_i max(p_i/p_j, q_i/q_j): two sides that draw with shared noise and never talk (Coupling
    without Communication and Drafter-Invariant SD, arXiv 2408.07978). A token that either side cannot draw adds 0."""
    pairs = list(zip(p, q, strict=True))
    both = [(target, draft) for target, draft in pairs if target > 0.0 and draft > 0.0]
    return sum(1.0 / sum(max(pi / pj, qi / qj) for pi, qi in pairs) for pj, qj in both)


def coupling_bounds(tv: float) -> tuple[float, float]:
    """((1 - TV)/(1 + TV), 1 - TV): least and most that shared noise matches (arXiv 2408.07978)."""
    return (1.0 - tv) / (1.0 + tv), 1.0 - tv


def residual_tv_bound(sent_p: Sequence[float], sent_q: Sequence[float]) -> float:
    """d/(Z + d), d = 1 - sum of the sent p, Z their excess over q: how far the residual drawn from the sent tokens
    alone can be from the true one (AsymSpec, arXiv 2608.04974). 0: exact."""
    unsent = max(0.0, 1.0 - sum(sent_p))
    return unsent / (excess(sent_p, sent_q) + unsent) if unsent else 0.0


def thinning_acceptance(p: float, q: float) -> float:
    """max(0, 1 - q(Y)/p(Y)) for a Y drawn from p, so `p` > 0: accepted draws have the exact residual (AsymSpec, arXiv
    2608.04974)."""
    return max(0.0, 1.0 - q / p)


def thinning_tries(tv: float) -> float:
    """1/Z draws of Y on average, Z over the whole vocabulary and so TV (AsymSpec, arXiv 2608.04974)."""
    return float("inf") if tv == 0.0 else 1.0 / tv
