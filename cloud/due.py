"""When a session's next token is due: the clock of just-in-time verification."""

from __future__ import annotations

import math

BURST_S = 0.5
"""Neither an outage nor a burst moves the due time by more than this."""


class DueClock:
    """After m tokens at time t: due = clamp(due, t - B, t + B) + m / rate. A rate of 0 is never due."""

    def __init__(self, now: float, rate: float) -> None:
        self.rate = rate
        self.due = now if rate > 0 else math.inf

    def committed(self, now: float, tokens: int) -> None:
        """Tokens became final at `now`."""
        if self.rate > 0:
            self.due = min(max(self.due, now - BURST_S), now + BURST_S) + tokens / self.rate

    def is_due(self, step_end: float) -> bool:
        """True if the next token is wanted before a step that ends at `step_end` is over."""
        return self.due <= step_end
