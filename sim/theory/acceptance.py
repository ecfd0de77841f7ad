"""How many tokens a verify step yields: acceptance, survival and their sums.

An `Acceptance` is one chance `a` for every depth, or chances `a_i` by depth, each given that depth i was reached; below
the last one given, the last holds. All lie in [0, 1], else UsageError.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import TypeAlias

from acespec.proto.errors import UsageError

Acceptance: TypeAlias = float | Sequence[float]


def rate_at(a: Acceptance, depth: int) -> float:
    """Definition: a_i at `depth` i, from 1."""
    if isinstance(a, (int, float)):
        return checked_rate(a)
    if not a:
        raise UsageError("no acceptance is given: name one chance for all depths, or at least that of depth 1")
    return checked_rate(a[min(depth, len(a)) - 1])


def checked_rate(a: float) -> float:
    """Definition: `a`, if it is a chance; UsageError else."""
    if not 0.0 <= a <= 1.0:
        raise UsageError(f"acceptance is {a}: it must lie between 0 and 1")
    return float(a)


def survivals(a: Acceptance, D: int) -> tuple[float, ...]:
    """Definition: S_1 .. S_D with S_k = a_1 ... a_k, the chance that the first k drafts are all kept."""
    return tuple(accumulate((rate_at(a, depth) for depth in range(1, D + 1)), mul))


def survival(a: Acceptance, k: int) -> float:
    """Definition: S_k; S_0 = 1."""
    return survivals(a, k)[-1] if k else 1.0


def accepted_drafts(a: Acceptance, D: int) -> float:
    """Definition: AL = S_1 + ... + S_D, drafts kept in a step, without the bonus token."""
    return sum(survivals(a, D))


def tokens_per_step(a: Acceptance, D: int) -> float:
    """Definition: E = 1 + AL, for one `a` (1 - a^(D+1))/(1 - a); E[A] in the papers."""
    return 1.0 + accepted_drafts(a, D)


def tokens_without_bonus(a: Acceptance, D: int) -> float:
    """E' = (1 - a^D)/(1 - a), the count of PicoSpec (arXiv 2603.19133) and AceSpec (2609.02514); E[L] there."""
    return tokens_per_step(a, D - 1) if D else 0.0


def rates_of(survivals: Sequence[float]) -> tuple[float, ...]:
    """Definition: a_i = S_i / S_(i-1), from printed survivals, all above 0."""
    return tuple(now / before for before, now in zip((1.0, *survivals), survivals, strict=False))


def pooled_acceptance(survivals: Sequence[float]) -> float:
    """Definition: drafts kept over drafts made, AL / D: what most papers print as the acceptance rate."""
    return sum(survivals) / len(survivals)
