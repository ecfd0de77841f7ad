"""How long to draft before asking for a verdict, to minimise (D t_d + C)/E.

All derived; the structure (D grows with the logarithm of the delay) agrees with UCB-SpecStop, arXiv 2606.20591. S_k
only falls with k, so the gain of one more draft only falls, and the first failure of a rule is the best place to stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from acespec.proto.errors import UsageError
from acespec.sim.theory.acceptance import Acceptance, checked_rate, rate_at
from acespec.sim.theory.costs import Costs
from acespec.sim.theory.distance import rtt_max_ms
from acespec.sim.theory.single_session import stop_and_wait_ms

LONGEST = 256
"""Drafts in one message that are worth a thought; deeper the survival is nil at any real acceptance."""


def next_draft_pays(survivals: Sequence[float], t_d: float, C: float) -> bool:
    """S_(k+1) (k t_d + C) > t_d (1 + S_1 + ... + S_k), derived: whether to draft the last of `survivals`, S_1 ..
    S_(k+1), after the k before it."""
    *kept, following = survivals
    return following * (len(kept) * t_d + C) > t_d * (1.0 + sum(kept))


def next_draft_pays_at_rate(survival: float, tokens_per_ms: float, t_d: float) -> bool:
    """S_(k+1) > lambda t_d, derived (Dinkelbach's form of the rule): lambda is the output rate in tokens per ms."""
    return survival > tokens_per_ms * t_d


def stopping_depth(a: Acceptance, t_d: float, C: float, longest: int = LONGEST) -> int:
    """The best D in 0 .. `longest` by `next_draft_pays`, derived; D = 0 pays C for each token."""
    kept, survival = 1.0, 1.0
    for k in range(longest):
        survival *= rate_at(a, k + 1)
        if survival * (k * t_d + C) <= t_d * kept:
            return k
        kept += survival
    return longest


def depth_at_rate(a: Acceptance, t_d: float, tokens_per_ms: float, longest: int = LONGEST) -> int:
    """The D in 0 .. `longest` by `next_draft_pays_at_rate`, derived: the best D if lambda is the rate it yields."""
    survival = 1.0
    for k in range(longest):
        survival *= rate_at(a, k + 1)
        if not next_draft_pays_at_rate(survival, tokens_per_ms, t_d):
            return k
    return longest


def first_draft_pays(a: float, t_d: float, C: float) -> bool:
    """C > t_d/a, derived: D = 1 beats D = 0."""
    return checked_rate(a) * C > t_d


def one_draft_is_best(a: float, t_d: float, C: float) -> bool:
    """t_d/a < C <= t_d (1 + a - a^2)/a^2, derived: D = 1 beats every other D."""
    return first_draft_pays(a, t_d, C) and a * a * C <= t_d * (1.0 + a - a * a)


def balance_depth(a: float, t_d: float, C: float) -> float:
    """The real D >= 0 with D + 1 = ln(1 + (1 - a)(D + C/t_d))/ln(1/a), derived; 0 where even D = 0 is past it.

    `t_d` is above 0; infinite for a = 1. The right side is a contraction in D, so bisection has one root to find.
    """
    if checked_rate(a) == 1.0:
        return math.inf
    if not first_draft_pays(a, t_d, C):
        return 0.0

    def missing(D: float) -> float:
        return math.log1p((1.0 - a) * (D + C / t_d)) / -math.log(a) - (D + 1.0)

    low, high = 0.0, 1.0
    while missing(high) > 0.0:
        low, high = high, 2.0 * high
    while (middle := (low + high) / 2.0) not in (low, high):
        low, high = (middle, high) if missing(middle) > 0.0 else (low, middle)
    return high


def best_depth(a: float, t_d: float, C: float) -> int:
    """`balance_depth` rounded up, derived: the best D at one acceptance `a` < 1. It grows as the logarithm of C."""
    depth = balance_depth(a, t_d, C)
    if math.isinf(depth):
        raise UsageError("acceptance is 1: every further draft pays, so no draft length is best")
    return math.ceil(depth)


def fastest_depth(form: Callable[[int], float], longest: int = LONGEST) -> tuple[int, float]:
    """Definition: the D in 1 .. `longest` at which `form`, D to ms per token, is least, and that least."""
    depth = min(range(1, longest + 1), key=form)
    return depth, form(depth)


def drafting_is_off(costs: Costs, a: Acceptance, longest: int = LONGEST) -> bool:
    """(D t_d + C)/E >= t_ar at the best D, derived: a cloud that decodes by itself is at least as fast."""
    return stop_and_wait_ms(costs, a, stopping_depth(a, costs.t_d, costs.C, longest)) >= costs.t_ar


def break_even_rtt_ms(costs: Costs, a: Acceptance, longest: int = LONGEST) -> float:
    """Greatest RTT_max less tau over D >= 1, derived: stop-and-wait at its best D beats plain decoding iff R lies
    below it. R of `costs` is not read; negative: never."""
    return max(rtt_max_ms(costs, a, D) for D in range(1, longest + 1)) - costs.tau
