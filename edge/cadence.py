"""When the edge owes the cloud a frame by time alone: acknowledgements and requests for a step (sans-IO).

An acknowledgement costs 85 bytes and more, so one goes about every round trip, and not at once if a draft is likely to
carry it. If nothing is committed for long, a frame asks for a step, ever more rarely.
"""

from __future__ import annotations

INTERVAL_S = 0.1
"""Between acknowledgements while the round trip is unknown."""
SHORTEST_S = 0.01
"""Between acknowledgements on a link so short that a round trip says nothing."""
GRACE_S = 0.01
"""How long an acknowledgement waits for a draft that is being made; well within TCP's delayed ACK of 40 ms."""
PATIENCE_S = 0.5
"""Silence after which an edge without drafts asks for a step; twice that with drafts on their way."""
PATIENCE_ROUNDS = 3.0
MOST_DOUBLINGS = 3


class Cadence:
    """Times of one turn, in seconds of the session's clock."""

    def __init__(self, now: float) -> None:
        self._frame_at = now
        self._progress_at = now
        self._unacked_since: float | None = None
        self._newest_commit: float | None = None
        self._next_in = 0.0
        self._requests = 0

    def heard(self, now: float, tokens: int, next_in_s: float) -> None:
        """A commit of `tokens` arrived; the session's next step was expected in `next_in_s`."""
        self._newest_commit = now
        self._next_in = next_in_s
        if tokens:
            self._progress_at = now
            self._requests = 0
            self._unacked_since = now if self._unacked_since is None else self._unacked_since

    def wrote(self, now: float, request: bool) -> None:
        """A frame went out: everything is acknowledged."""
        self._frame_at = now
        self._unacked_since = self._newest_commit = None
        self._requests += request

    def held_ms(self, now: float) -> int | None:
        """How long the newest commit waited for its acknowledgement; None if it had one."""
        return None if self._newest_commit is None else round((now - self._newest_commit) * 1000)

    def ack_at(self, rtt: float | None, drafting: bool) -> float | None:
        """When an acknowledgement is due; None if there is nothing to acknowledge."""
        if self._unacked_since is None:
            return None
        interval = INTERVAL_S if rtt is None else max(rtt, SHORTEST_S)
        return max(self._frame_at + interval, self._unacked_since + (GRACE_S if drafting else 0.0))

    def request_at(self, rtt: float | None, dry: bool) -> float:
        """When to ask for a step. `dry`: the cloud has no draft of ours to verify."""
        patience = max(PATIENCE_S, PATIENCE_ROUNDS * (rtt or 0.0)) * (1 if dry else 2)
        waits = patience * (1 << min(self._requests, MOST_DOUBLINGS))
        last = self._progress_at if self._requests == 0 else self._frame_at
        return last + self._next_in + waits
