"""PipeSD's batching: which drafts share a message, so that the last one arrives soonest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """`ms` until the last draft is through the link; `sizes` drafts in each message, in order."""

    ms: float
    sizes: tuple[int, ...]


def plan_batches(drafts: int, t_d: float, envelope_ms: float, draft_ms: float) -> BatchPlan:
    """dp[0] = 0; dp[j] = min_(i<j) max(dp[i], j t_d) + al + be (j - i) (PipeSD, arXiv 2605.13319).

    `envelope_ms` al is how long a message's envelope occupies the link, without propagation; `draft_ms` be what each
    draft adds. PipeSD takes the mean draft length for `drafts`. Equal times: the largest last message.
    """
    best = [0.0]
    start = [0]
    for j in range(1, drafts + 1):
        ends = [max(best[i], j * t_d) + envelope_ms + draft_ms * (j - i) for i in range(j)]
        best.append(min(ends))
        start.append(ends.index(best[j]))
    sizes: list[int] = []
    j = drafts
    while j:
        sizes.append(j - start[j])
        j = start[j]
    return BatchPlan(best[drafts], tuple(reversed(sizes)))
