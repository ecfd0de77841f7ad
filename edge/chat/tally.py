"""What a conversation has cost so far: sums over its answers, for `/stats`."""

from __future__ import annotations

from collections.abc import Sequence

from acespec.edge.completion import Completion
from acespec.edge.report import as_line, quantile


class Tally:
    """Counts answers; those that were stopped have no account of the verifier, only their tokens."""

    def __init__(self) -> None:
        self._done: list[Completion] = []
        self._stopped = 0
        self._stopped_tokens = 0

    def finished(self, done: Completion) -> None:
        """An answer came to its end."""
        self._done.append(done)

    def stopped(self, tokens: int) -> None:
        """An answer was cut off after so many tokens."""
        self._stopped += 1
        self._stopped_tokens += tokens

    def report(self) -> str:
        """Lines for a person; byte counts are IP bytes as modelled (`wire_stats.py`)."""
        if not self._done:
            return f"no finished answer yet{self._cut_off()}"
        tokens = sum(len(done.token_ids) for done in self._done)
        seconds = sum(done.total_s for done in self._done)
        accepted = sum(done.totals.accepted_tokens for done in self._done)
        drafted = sum(done.totals.draft_tokens for done in self._done)
        steps = sum(done.totals.verify_steps for done in self._done)
        up = sum(done.wire.up_bytes for done in self._done)
        down = sum(done.wire.down_bytes for done in self._done)
        return "\n".join(
            [
                f"answers     {len(self._done)}{self._cut_off()}",
                f"tokens      {tokens} in {seconds:.1f} s, {tokens / max(seconds, 1e-9):.1f}/s",
                f"drafts      {accepted} of {drafted} accepted, AL {accepted / max(1, steps):.2f}, "
                f"{steps} verify steps",
                f"IP bytes    up {up} down {down}, {(up + down) / max(1, tokens):.0f} a token",
                f"round trip  {_milliseconds(self._done[-1].rtts)}",
                f"last        {as_line(self._done[-1])}",
            ]
        )

    def _cut_off(self) -> str:
        return f", and {self._stopped} stopped after {self._stopped_tokens} tokens" if self._stopped else ""


def short_line(done: Completion) -> str:
    """What stands below a finished answer on a terminal."""
    tokens = max(1, len(done.token_ids))
    return (
        f"{len(done.token_ids)} tokens in {done.total_s:.1f} s, {done.tokens_per_s:.1f}/s"
        f" · AL {done.acceptance_length:.1f} · {(done.wire.up_bytes + done.wire.down_bytes) / tokens:.0f} B/token"
    )


def _milliseconds(rtts: Sequence[float]) -> str:
    middle, high = quantile(rtts, 0.5), quantile(rtts, 0.95)
    if middle is None or high is None:
        return "not measured"
    return f"p50 {1000 * middle:.0f} ms, p95 {1000 * high:.0f} ms"
