"""Sessions that draft while verdicts are on their way: PicoSpec's depth 1, deep streaming, a free-running verifier,
and a tree that lives at the verifier."""

from __future__ import annotations

from acespec.sim.theory.acceptance import Acceptance, checked_rate, survival, tokens_without_bonus
from acespec.sim.theory.costs import Costs


def picospec_ms(costs: Costs, a: Acceptance, D: int) -> float:
    """T = [a^D max(D t_d, C) + (1 - a^D)(D t_d + C)]/E', D >= 1: the next D are drafted as if all were kept, and a
    rejection flushes them (form 4; PicoSpec, arXiv 2603.19133)."""
    all_kept = survival(a, D)
    draft = D * costs.t_d
    cycle = all_kept * max(draft, costs.C) + (1.0 - all_kept) * (draft + costs.C)
    return cycle / tokens_without_bonus(a, D)


def streaming_ms(costs: Costs, a: float) -> float:
    """T = t_d + (1 - a) C, derived: the edge never pauses and a rejection costs one C, so 1/(1 - a) tokens take
    t_d/(1 - a) + C, while verifier and link keep up (form 6)."""
    return costs.t_d + (1.0 - checked_rate(a)) * costs.C


def streaming_break_even_ms(costs: Costs, a: float) -> float:
    """(t_ar - t_d)/(1 - a) - t_v - tau, derived: streaming beats plain decoding iff R lies below it (form 6). R of
    `costs` is not read; infinite for a = 1 if drafting is faster than plain decoding."""
    gain = costs.t_ar - costs.t_d
    if checked_rate(a) == 1.0:
        return float("inf") if gain > 0 else float("-inf")
    return gain / (1.0 - a) - costs.t_v - costs.tau


def useful_window(costs: Costs) -> float:
    """C/t_d, derived: more unacknowledged drafts than this help nothing (form 6)."""
    return costs.C / costs.t_d


def window_knee(a: float) -> float:
    """2/(1 - a), derived: about where a wider window of unacknowledged drafts stops to pay (form 6)."""
    return float("inf") if checked_rate(a) == 1.0 else 2.0 / (1.0 - a)


def free_running_ceiling(costs: Costs, a: float) -> float:
    """[1/(1 - a) + (R + tau)/t_ar]/[t_d/(1 - a) + C] in tokens per second, derived and unproven (form 7).

    While a rejection's notice travels and new drafts come back, the verifier commits a plain token every t_ar. A
    ceiling only where streaming without a link beats plain decoding, t_d + (1 - a) t_v <= t_ar: elsewhere the verifier
    outruns it by plain steps alone.
    """
    missed = 1.0 - checked_rate(a)
    # Numerator and denominator times (1 - a), so that a = 1 is no special case.
    tokens = 1.0 + missed * (costs.R + costs.tau) / costs.t_ar
    return 1000.0 * tokens / (costs.t_d + missed * costs.C)


def free_running_bounds_ms(costs: Costs, a: float) -> tuple[float, float]:
    """(fastest, slowest) T of streaming to a verifier that never waits, derived (form 7): T <= t_ar by construction,
    less kernel overhead; T -> t_ar as R grows and -> streaming as R -> 0."""
    return min(1000.0 / free_running_ceiling(costs, a), costs.t_ar), costs.t_ar


def resident_tree_ms(costs: Costs, level_ms: float, kappa: float) -> float:
    """T = t_d' + (1 - kappa) C, derived (form 8): alternatives are shipped, so only a surprise costs a round trip.

    `level_ms` t_d' is the edge's time for one level of the tree, `kappa` the chance that the next target token is among
    the nodes shipped. It bounds lossless schemes whose only drafter is at the edge and whose verifier waits.
    """
    return level_ms + (1.0 - checked_rate(kappa)) * costs.C


def tree_kbps(levels_per_second: float, nodes_per_level: float, bits_per_node: float) -> float:
    """Payload of a shipped tree in Kbps, derived (form 8), framing excluded."""
    return levels_per_second * nodes_per_level * bits_per_node / 1000.0
