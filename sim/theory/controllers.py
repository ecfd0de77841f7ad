"""Published rules for when to stop drafting, as pure decisions: what they see goes in, what they do comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod

from acespec.sim.theory.costs import Costs


def specdec_stops(rates: Sequence[float], h: float) -> bool:
    """1 - prod a^_i > h: a rejection is likelier than h (SpecDec++, arXiv 2405.19715; a^ from a trained head)."""
    return 1.0 - prod(rates) > h


def adaedl_stops(entropy: float, threshold: float) -> bool:
    """1 - sqrt(0.2 H(q)) < threshold, `entropy` H of the drafter's distribution (AdaEDL, arXiv 2410.18351)."""
    return 1.0 - math.sqrt(0.2 * entropy) < threshold


def pipesd_verifies(confidences: Sequence[float], R1: float, R2: float) -> bool:
    """c <= R1 or q(x_n) <= R2, c the product of all q(x_i) since the last verdict (PipeSD, arXiv 2605.13319)."""
    return prod(confidences) <= R1 or confidences[-1] <= R2


def pipesd_product_threshold(tokens_per_ms: float, t_d: float) -> float:
    """R1 = lambda t_d, derived: PipeSD searches for it; the rate form of optimal stopping names it."""
    return tokens_per_ms * t_d


def specedge_depth(costs: Costs) -> float:
    """The depth with depth t_d + R = t_v, 0 if R alone exceeds it (SpecEdge, arXiv 2505.17052): it balances the two
    sides and maximises nothing."""
    return max(0.0, (costs.t_v - costs.R) / costs.t_d)


def ollama_draft_count(committed: Sequence[float], cost: Sequence[float]) -> int:
    """argmax_(N>=0) committed(N)/cost(N), the fewest on a tie; both are given by N from 0, which is off (Ollama,
    x/mlxrunner/speculate_depth.go)."""
    rates = [tokens / ms for tokens, ms in zip(committed, cost, strict=True)]
    return rates.index(max(rates))


def ucb_rates(rates: Sequence[float], visits: Sequence[int], t: int) -> tuple[float, ...]:
    """min(1, a^_i + sqrt(2 ln t/n_i)) by depth, derived; 1 where `visits` n_i is 0. `t` rounds, from 1."""
    bonus = [math.sqrt(2.0 * math.log(t) / n) if n else math.inf for n in visits]
    return tuple(min(1.0, rate + extra) for rate, extra in zip(rates, bonus, strict=True))


def ucb_tokens(rates: Sequence[float], visits: Sequence[int], t: int) -> tuple[float, ...]:
    """E_k = 1 + sum_(j<=k) prod_(i<=j) min(1, a^_i + sqrt(2 ln t/n_i)), k = 0 .. K, derived: all depths share data."""
    tokens = [1.0]
    survival = 1.0
    for rate in ucb_rates(rates, visits, t):
        survival *= rate
        tokens.append(tokens[-1] + survival)
    return tuple(tokens)


def ucb_arm(costs: Costs, rates: Sequence[float], visits: Sequence[int], t: int) -> int:
    """argmin_k (k t_d + C)/E_k over arms 0 .. K, arm 0 costing t_ar, the fewest on a tie: the rule of UCB-SpecStop
    (arXiv 2606.20591) with the index of `ucb_tokens`, derived."""
    tokens = ucb_tokens(rates, visits, t)
    times = [costs.t_ar, *((k * costs.t_d + costs.C) / tokens[k] for k in range(1, len(tokens)))]
    return times.index(min(times))


def ucb_regret_order(longest_ms: float, arms: int, rounds: int) -> float:
    """L_max sqrt(K_max T log(K_max T)), up to a constant (UCB-SpecStop, arXiv 2606.20591)."""
    return longest_ms * math.sqrt(arms * rounds * math.log(arms * rounds))
