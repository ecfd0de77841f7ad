"""How many clients a verifier carries, and the rate that it can hold for one at few steps."""

from __future__ import annotations

from dataclasses import dataclass

from acespec.sim.theory.acceptance import Acceptance, tokens_per_step
from acespec.sim.theory.costs import Costs


@dataclass(frozen=True, slots=True)
class Capacity:
    """Clients per verifier at one rate per client, over those of plain decoding (`plain` = 1)."""

    plain: float
    colocated: float
    distributed: float


def capacity(costs: Costs, a: Acceptance, D: int) -> Capacity:
    """N_ar : N_coloc : N_dsd = 1 : E t_ar/(D t_dc + t_v) : E t_ar/t_v (Prop. 9; Speculation at a Distance, arXiv
    2606.25091), if enough clients fill every gap: one alone gains nothing. t_v/t_ar rises at large batch and short
    context (its Remark 10)."""
    work = tokens_per_step(a, D) * costs.t_ar
    return Capacity(1.0, work / (D * costs.cloud_draft + costs.t_v), work / costs.t_v)


def distributed_over_colocated(costs: Costs, D: int) -> float:
    """N_dsd/N_coloc = 1 + D t_dc/t_v (Prop. 9; arXiv 2606.25091)."""
    return 1.0 + D * costs.cloud_draft / costs.t_v


def clients_over_plain(costs: Costs, steps_per_token: float) -> float:
    """N/N_ar = t_ar/(n t_v), derived: n verifier steps per committed token; free running buys latency with steps."""
    return costs.t_ar / (steps_per_token * costs.t_v)


def knee_rate(costs: Costs, a: Acceptance, D: int) -> float:
    """r = E/(C + D t_d) in tokens per second, derived: just-in-time verification holds a rate below it with few steps;
    above it D drafts do not come in time, and plain steps make up for them."""
    return 1000.0 * tokens_per_step(a, D) / (costs.C + D * costs.t_d)


def fewest_steps_per_token(a: Acceptance, D: int) -> float:
    """1/E, for one `a` (1 - a)/(1 - a^(D+1)), derived: a verifier that always waits for D drafts of a chain."""
    return 1.0 / tokens_per_step(a, D)
