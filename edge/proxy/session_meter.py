"""Watches a session for the figures that no completion tells, and passes on what it sees."""

from __future__ import annotations

from acespec.edge.proxy.metrics import COUNTED_PLACES, Metrics
from acespec.edge.session import EdgeSession
from acespec.edge.watch import CommitSeen, Drafted, Happening, Outage, Sent, Served, SessionWatcher


class SessionMeter:
    """A `SessionWatcher`.

    Args:
        mode: what is done about outages.
        beside: another watcher, such as a trace.
    """

    def __init__(self, metrics: Metrics, session: EdgeSession, mode: str, beside: SessionWatcher | None) -> None:
        self._metrics = metrics
        self._session = session
        self._mode = mode
        self._beside = beside
        self._down = False

    def saw(self, happening: Happening) -> None:
        """See `SessionWatcher.saw`."""
        match happening:
            case Sent(what="draft"):
                self._metrics.draft_length.observe(self._session.unverified)
            case CommitSeen():
                for place in range(min(happening.named, COUNTED_PLACES)):
                    self._metrics.accepted_at.labels(str(place)).inc()
            case Drafted():
                self._metrics.draft_seconds.observe(happening.seconds)
            case Outage():
                if not self._down:
                    self._metrics.fallback.labels(self._mode).inc()
                self._down = True
            case Served() if self._down:
                self._metrics.resumes.labels("resumed" if happening.resumed else "anew").inc()
                self._down = False
        if self._beside is not None:
            self._beside.saw(happening)
