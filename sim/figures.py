"""The figures of a result that tables and plots show: name, words, unit, and where in the result they stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from acespec.proto.errors import UsageError
from acespec.sim.world.result import Result

GAIN = "gain"
"""Not of one result but of two: tokens/s over those of plain decoding under the same conditions."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a result. `better` is 1 if more is better, -1 if less is, 0 if neither."""

    name: str
    words: str
    unit: str
    of: Callable[[Result], float]
    better: int = 0

    @property
    def label(self) -> str:
        """Words and unit, as an axis or a column shows them."""
        return f"{self.words}, {self.unit}" if self.unit else self.words


_ALL = (
    Figure("tokens_per_s", "decoding speed of an edge, mean", "tokens/s", lambda r: r.tokens_per_s.mean, 1),
    Figure(
        "slow_tokens_per_s", "decoding speed of the slowest 5 % of edges", "tokens/s", lambda r: r.tokens_per_s.p5, 1
    ),
    Figure(
        "total_tokens_per_s", "tokens of all edges over the whole run", "tokens/s", lambda r: r.total_tokens_per_s, 1
    ),
    Figure("first_token_s", "time to the first token, median", "s", lambda r: r.first_token.p50, -1),
    Figure("gap_p50_ms", "gap between tokens, median", "ms", lambda r: 1000 * r.gap.p50, -1),
    Figure("gap_p95_ms", "gap between tokens, 95th percentile", "ms", lambda r: 1000 * r.gap.p95, -1),
    Figure("gap_p99_ms", "gap between tokens, 99th percentile", "ms", lambda r: 1000 * r.gap.p99, -1),
    Figure("up_bytes_per_token", "IP bytes up per token", "B", lambda r: r.up_bytes_per_token, -1),
    Figure("down_bytes_per_token", "IP bytes down per token", "B", lambda r: r.down_bytes_per_token, -1),
    Figure(
        "bytes_per_token",
        "IP bytes per token, both ways",
        "B",
        lambda r: r.up_bytes_per_token + r.down_bytes_per_token,
        -1,
    ),
    Figure("up_payload_per_token", "protobuf bytes up per token", "B", lambda r: r.up_payload_per_token, -1),
    Figure("down_payload_per_token", "protobuf bytes down per token", "B", lambda r: r.down_payload_per_token, -1),
    Figure(
        "acceptance_length", "acceptance length of drafted steps, bonus not counted", "", lambda r: r.acceptance_length
    ),
    Figure("steps_per_token", "verify steps per token, plain ones included", "", lambda r: r.steps_per_token, -1),
    Figure("verifier_ms_per_token", "verifier time per token", "ms", lambda r: 1000 * r.verifier_s_per_token, -1),
    Figure("utilisation", "share of time that the verifier works", "%", lambda r: 100 * r.utilisation),
    Figure("on_schedule", "tokens on schedule at the wanted rate", "%", lambda r: 100 * r.on_schedule, 1),
)

FIGURES: dict[str, Figure] = {figure.name: figure for figure in _ALL}


def find_figure(name: str) -> Figure:
    """The figure of that name. Raises UsageError that lists the names."""
    try:
        return FIGURES[name]
    except KeyError:
        raise UsageError(f"no figure {name!r}: choose one of {', '.join((*FIGURES, GAIN))}") from None


def shown(value: float) -> str:
    """A number with as many digits as tell something."""
    size = abs(value)
    if size == 0:
        return "0"
    return (
        f"{value:.0f}"
        if size >= 1000
        else f"{value:.1f}"
        if size >= 10
        else f"{value:.2f}"
        if size >= 1
        else f"{value:.3f}"
    )
