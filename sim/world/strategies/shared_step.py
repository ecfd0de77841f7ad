"""What a round at a verifier costs when many share it: the asymptotic bounds of a closed queue (derived)."""

from __future__ import annotations

from acespec.proto.timing_profile import TimingProfile

ROUNDS = 8
"""Of the search for how many sessions meet in a step; it converges within a few."""


class SharedStep:
    """A verifier of that timing which takes whatever waits, `max_rows` rows at most, into its next step."""

    def __init__(self, timing: TimingProfile, max_rows: int) -> None:
        self._timing = timing
        self._max_rows = max_rows

    def round_ms(self, rows: int, crowd: float, *, away_ms: float = 0.0, draft_ms: float = 0.0) -> float:
        """How long a session's `rows` rows keep it at the verifier, if each of a `crowd` of sessions comes back
        `away_ms` after its step. `draft_ms`: what a step takes before it, drafting for all of its sessions.

        While a step of s ms runs, n s/(away + s) sessions come for the next; if they are more than fit, rounds
        take n steps over the sessions that fit. A session alone never waits.
        """
        fit = max(1.0, self._max_rows / rows)
        met = 1.0
        step = self._step_ms(rows, met) + draft_ms
        if crowd <= 1:
            return step
        for _ in range(ROUNDS):
            met = min(fit, max(1.0, crowd * step / (away_ms + step)))
            step = self._step_ms(rows, met) + draft_ms
        return max(step, crowd * step / met - away_ms)

    def _step_ms(self, rows: int, sessions: float) -> float:
        return 1000 * self._timing.step_s(round(rows * sessions), round(sessions))
