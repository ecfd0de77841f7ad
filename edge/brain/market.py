"""Gathers what a session observes of link and verifier into prices (sans-IO)."""

from __future__ import annotations

from acespec.edge.brain.headway import Headway
from acespec.edge.brain.prices import Prices
from acespec.proto.messages import Commit
from acespec.proto.pacer import FLOOR_BYTES, Pacer

RATE_FADE = 0.999
"""What an acknowledgement leaves of the best link rate seen. A rate is only ever seen from below: what is sent rarely
arrives rarely. So a price must not follow it down at once, or a link that is used little would seem dear and be used
even less."""
JITTER_WEIGHT = 0.1


class Market:
    """Of one session; what was learned outlives turns."""

    def __init__(self) -> None:
        self._jitter = 0.0
        self._link_rate = 0.0
        self._verify = 0.0
        self._load = 0.0
        self._waits = False

    def heard(self, commit: Commit) -> None:
        """A commit arrived. Verify time and load are told only when they have changed."""
        if commit.verify_us:
            self._verify = commit.verify_us / 1e6
            self._load = min(1.0, commit.load / 100)
        self._waits = commit.next_in_ms > 0

    def measured(self, pacer: Pacer) -> None:
        """An acknowledgement has told the pacer something."""
        self._link_rate = max(self._link_rate * RATE_FADE, pacer.rate or 0.0)
        if pacer.last_rtt is not None and pacer.base_rtt is not None:
            self._jitter += JITTER_WEIGHT * (pacer.last_rtt - pacer.base_rtt - self._jitter)

    def prices(self, now: float, pacer: Pacer, headway: Headway) -> Prices:
        """What things cost now."""
        rtt = pacer.base_rtt
        least_rate = FLOOR_BYTES / rtt if rtt else 0.0  # What the pacer takes for granted.
        return Prices(
            link_rate=max(self._link_rate, least_rate) or None,
            cycle=rtt,
            jitter=self._jitter,
            verify=self._verify,
            load=self._load,
            headway=headway.tokens(now, rtt),
            waits=self._waits,
        )
