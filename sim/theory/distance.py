"""When drafting across a link can pay at all: the bounds of Speculation at a Distance (arXiv 2606.25091)."""

from __future__ import annotations

from acespec.sim.theory.acceptance import Acceptance, checked_rate, tokens_per_step
from acespec.sim.theory.costs import Costs


def transmission_ms(D: int, bits_per_draft: float, kbps: float) -> float:
    """T_tx = D b/rate for `bits_per_draft` b and `kbps` of 1000 bit/s (arXiv 2606.25091)."""
    return D * bits_per_draft / kbps


def pipe_ms(costs: Costs, a: Acceptance, D: int, waste: float = 0.0) -> float:
    """T_pipe = max((1 + w) D t_d, R + T_tx + t_v)/E: drafting goes on while a verdict is on its way; `waste` w in
    [0, 1] is the share of drafts made for nothing (eq. 7; arXiv 2606.25091)."""
    return max((1.0 + waste) * D * costs.t_d, costs.C) / tokens_per_step(a, D)


def rtt_max_ms(costs: Costs, a: Acceptance, D: int) -> float:
    """RTT_max = t_ar E - D t_d - t_v: T_dsd < t_ar iff R + T_tx lies below it (eq. 8 and Table III; arXiv 2606.25091).

    Negative: drafting D loses to plain decoding even without a link. R and tau of `costs` are not read.
    """
    return costs.t_ar * tokens_per_step(a, D) - D * costs.t_d - costs.t_v


def rtt_necessary_ms(costs: Costs, a: float, D: int, draft_tx_ms: float = 0.0) -> float:
    """a t_ar/(1 - a) - D (t_d + b/rate), which R must stay below if T_dsd < t_ar, for t_v >= t_ar (Prop. 2; arXiv
    2606.25091). `draft_tx_ms` is b/rate. Infinite for a = 1."""
    if checked_rate(a) == 1.0:
        return float("inf")
    return a * costs.t_ar / (1.0 - a) - D * (costs.t_d + draft_tx_ms)


def distance_penalty_ms(costs: Costs, a: Acceptance, D: int) -> float:
    """(R + T_tx)/E, by which T_dsd exceeds T_coloc if one server can hold both models and drafts as fast as the edge;
    never negative (Prop. 1; arXiv 2606.25091)."""
    return (costs.R + costs.tau) / tokens_per_step(a, D)


def pipe_cannot_win(costs: Costs, D: int) -> bool:
    """T_tx = 0 and R >= D t_d, which suffices for T_pipe >= T_coloc at one t_d and D (Prop. 13; arXiv 2606.25091)."""
    return costs.tau == 0.0 and D * costs.t_d <= costs.R


def flops_over_plain(a: Acceptance, D: int, draft_over_plain: float) -> float:
    """D (1 + C_draft/C_AR)/E: FLOPs per token over plain decoding's, a verify costing D C_AR; above 1, speculation
    costs more (Prop. 4; arXiv 2606.25091)."""
    return D * (1.0 + draft_over_plain) / tokens_per_step(a, D)


def verify_price(a: Acceptance, D: int, p_in: float, f_verify: float) -> float:
    """(D p_in + F_verify)/E: the price per token of an API that only verifies, for `p_in` per input token and
    `f_verify` per call (Remark 8; arXiv 2606.25091)."""
    return (D * p_in + f_verify) / tokens_per_step(a, D)


def verify_only_is_cheaper(a: Acceptance, D: int, p_in: float, f_verify: float, p_out: float) -> bool:
    """E > (D p_in + F_verify)/p_out, against an API at `p_out` per output token (Remark 8; arXiv 2606.25091)."""
    return tokens_per_step(a, D) * p_out > D * p_in + f_verify
