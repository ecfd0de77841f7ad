"""What a turn gives its caller: pieces of text while it runs, and an account of it at the end."""

from __future__ import annotations

from dataclasses import dataclass

from acespec.edge.wire_stats import WireTotals
from acespec.proto.logprobs import TokenLogprobs
from acespec.proto.messages import FinishReason, Opened, Totals


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that was not shown yet (may be empty), the ids that were committed with it, and their log probabilities."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """A finished turn. Times in seconds from the call; bytes as `wire_stats.py` counts them.

    `first_tokens` is how many tokens came with the first commit.
    `logprobs` has one item for each of `token_ids`, and is None if they were not asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    finish: FinishReason
    prompt_tokens: int
    seed: int
    drafter: str
    ttft_s: float
    first_tokens: int
    total_s: float
    totals: Totals
    wire: WireTotals
    rtts: tuple[float, ...]
    terms: Opened
    reconnects: int
    resyncs: int
    logprobs: tuple[TokenLogprobs, ...] | None = None

    @property
    def acceptance_length(self) -> float:
        """Accepted draft tokens per verify step, the bonus token not counted."""
        return self.totals.accepted_tokens / max(1, self.totals.verify_steps)

    @property
    def mean_draft_length(self) -> float:
        """Draft tokens verified per verify step."""
        return self.totals.draft_tokens / max(1, self.totals.verify_steps)

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens over the whole time, the wait for the first one included."""
        return len(self.token_ids) / self.total_s if self.total_s > 0 else 0.0

    @property
    def decode_tokens_per_s(self) -> float:
        """Generated tokens behind the first commit, over the time since it."""
        later, seconds = len(self.token_ids) - self.first_tokens, self.total_s - self.ttft_s
        return later / seconds if seconds > 0 else 0.0

    @property
    def bytes_per_token(self) -> float:
        """IP bytes of both directions, prompt included, per generated token."""
        return (self.wire.up_bytes + self.wire.down_bytes) / max(1, len(self.token_ids))
