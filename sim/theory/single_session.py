"""One session that takes turns with its verifier: plain decoding, co-located and stop-and-wait drafting."""

from __future__ import annotations

from acespec.sim.theory.acceptance import Acceptance, tokens_per_step
from acespec.sim.theory.costs import Costs


def plain_ms(costs: Costs) -> float:
    """T = t_ar: the cloud decodes alone; R is paid once a request, not per token (form 1; Speculation at a Distance,
    arXiv 2606.25091)."""
    return costs.t_ar


def colocated_ms(costs: Costs, a: Acceptance, D: int) -> float:
    """T = (D t_dc + t_v)/E: both models in the cloud (form 2; T_coloc of Speculation at a Distance, arXiv 2606.25091,
    which has one t_d for edge and cloud)."""
    return (D * costs.cloud_draft + costs.t_v) / tokens_per_step(a, D)


def colocated_speedup(costs: Costs, a: Acceptance, D: int) -> float:
    """(1 + AL)/(1 + rho D), over plain decoding, for t_v = t_ar: `costs.t_v` is not read (form 2; arXiv 2606.25091)."""
    return tokens_per_step(a, D) / (1.0 + costs.rho * D)


def stop_and_wait_ms(costs: Costs, a: Acceptance, D: int) -> float:
    """T = (D t_d + C)/E: draft D, send, wait for the verdict (form 3; T_dsd of Speculation at a Distance, arXiv
    2606.25091, whose T_tx is `tau`). D = 0 still pays C for each token."""
    return (D * costs.t_d + costs.C) / tokens_per_step(a, D)


def stop_and_wait_speedup(costs: Costs, a: Acceptance, D: int) -> float:
    """(1 + AL) t_ar/(D t_d + C), over plain decoding (form 3; arXiv 2606.25091)."""
    return tokens_per_step(a, D) * costs.t_ar / (D * costs.t_d + costs.C)
