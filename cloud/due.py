"""When a session's next token is due: the clock of just-in-time verification."""

from __future__ import annotations

import math

BURST_S = 0.5
"""Neither an outage nor a burst moves the due time by more than this."""
GRACE_S = 0.25
"""Lead that a session starts with: the reader's first tokens last until its first drafts are there."""
TIMEOUT_S = 1.0
"""A session that is never due steps after this long whatever it has, so that nothing deadlocks."""


class DueClock:
    """After m tokens at time t: due = clamp(due, t - B, t + B) + m / rate. The first commit starts the clock: how long
    the prompt took leaves no debt. At a rate of 0 a session is due when it has not stepped for TIMEOUT_S.

    Two things shift when the session is to step, not what it is promised: patience, while its drafts are on their way,
    and a reserve, a lead that is to be built now (`Turn.catch_up`).
    """

    def __init__(self, now: float, rate: float) -> None:
        self.rate = rate
        self.due = now
        """When the next step should have ended."""
        self._due = now
        self._started = False
        self._reserve = 0.0
        self._patience = 0.0

    def lead(self, now: float) -> float:
        """Seconds for which what is committed lasts, patience included."""
        return self._due + self._patience - now

    def give(self, patience: float) -> None:
        """Let the session be so many seconds late."""
        if patience != self._patience:
            self._patience = patience
            self._set()

    def recover(self, now: float, lead: float) -> None:
        """Be due until what is committed lasts for `lead` seconds; 0 ends that."""
        self._reserve = lead if self.lead(now) < lead else 0.0
        self._set()

    def committed(self, now: float, tokens: int, rate: float) -> None:
        """Tokens became final at `now`; until the next commit the session gets `rate` tokens/s."""
        if rate <= 0:
            self._due = now + TIMEOUT_S
        else:
            due = min(max(self._due, now - BURST_S), now + BURST_S) if self._started else now + GRACE_S
            self._due = due + tokens / rate
        self._started = True
        if self._reserve:
            self.recover(now, self._reserve)
        self._set()

    def _set(self) -> None:
        self.due = self._due + self._patience - self._reserve

    def late(self, now: float) -> float:
        """Seconds by which `now` is past the due time; 0 before the first token, and if the rate is 0."""
        return max(0.0, -self.lead(now)) if self.rate > 0 and self._started else 0.0


class Knee:
    """The rate up to which a session's drafts can carry it: tokens of a drafted step / time until the next draft.

    A session that is promised more needs plain steps in between, which cost the verifier a step a token. The time is
    learned from how long after a commit enough drafts were pending; a session that steps before they are tells only
    that it takes longer. Nothing is known of a session without drafts.
    """

    def __init__(self) -> None:
        self._cycle_s: float | None = None
        self._since: float | None = None

    def stepped(self, now: float) -> None:
        """A step has ended."""
        if self._since is not None and self._cycle_s is not None and now - self._since > self._cycle_s:
            self._learn(now - self._since)
        self._since = now

    def ready(self, now: float) -> None:
        """Enough drafts are pending for a step."""
        if self._since is not None:
            self._learn(now - self._since)
            self._since = None

    @property
    def cycle_s(self) -> float:
        """Seconds from a commit until enough drafts are pending; 0 while nothing is known."""
        return self._cycle_s or 0.0

    def rate(self, tokens: float, step_s: float) -> float:
        """Tokens/s, if a drafted step commits `tokens` and takes `step_s`; inf while nothing is known."""
        return math.inf if self._cycle_s is None else tokens / (self._cycle_s + step_s)

    def _learn(self, seconds: float) -> None:
        self._cycle_s = seconds if self._cycle_s is None else self._cycle_s + 0.1 * (seconds - self._cycle_s)
