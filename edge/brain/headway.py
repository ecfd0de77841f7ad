"""How far a free-running cloud gets while a draft is on its way (sans-IO).

A draft whose last token lies within that distance arrives after its positions are final: it is of no use, yet its
bytes delay our acknowledgements. So a message of drafts need not leave by itself before the path reaches further.
"""

from __future__ import annotations

FADE = 0.9
"""What one commit leaves of the earlier ones in the output rate."""
QUIET_S = 0.5
"""Longest time between commits that still counts as free running, beyond two round trips."""


class Headway:
    """Learned from the commits of one epoch. Times in seconds of the session's clock."""

    def __init__(self) -> None:
        self._tokens = self._seconds = 0.0
        self._heard_at: float | None = None
        self._waits = False

    def heard(self, now: float, tokens: int, next_in_s: float) -> None:
        """A commit of `tokens` arrived; the session's next step was expected in `next_in_s`."""
        self._waits = next_in_s > 0
        if not tokens:
            return
        if self._heard_at is not None:
            self._tokens = self._tokens * FADE + tokens
            self._seconds = self._seconds * FADE + (now - self._heard_at)
        self._heard_at = now

    def tokens(self, now: float, rtt: float | None) -> int:
        """Tokens that become final in a round trip; 0 where the cloud waits for drafts, or nothing is known."""
        if self._heard_at is None or rtt is None or self._waits or self._seconds <= 0:
            return 0
        if now - self._heard_at > QUIET_S + 2 * rtt:
            return 0
        return int(self._tokens / self._seconds * rtt)
