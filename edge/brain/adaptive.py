"""What the adaptive controllers learn alike: survival, output rate and drafting time."""

from __future__ import annotations

from collections.abc import Sequence

from acespec.edge.brain.averages import FadingRatio
from acespec.edge.brain.controller import AUTO_CAP, Decision
from acespec.edge.brain.prices import FREE, Prices
from acespec.edge.brain.survival import Guess, Outcome, SurvivalEstimates

FADE = 0.8
"""What a new sample leaves of the older ones in the averages of output rate and drafting time."""
STEADY = 0.97
"""The same where a decision must not hang on a burst."""
PAUSE_S = 1.0
"""A longer gap between commits is a pause (an outage, a person typing), not a slow output."""
KEEP_FLOOR = 0.005
"""A guess less likely than this is not worth its 2 bytes and its verify row, however fast it was drafted. With four
times as much, siblings and trees were 4 to 10 % slower where round trips are short."""


class AdaptiveController:
    """The part of a controller that watches. Alone it drafts and ships whatever is likely enough to be kept.

    Attributes:
        estimates: what guesses are worth.
    """

    def __init__(self, cap: int = AUTO_CAP) -> None:
        self.estimates = SurvivalEstimates()
        self._cap = cap
        self._output = FadingRatio(FADE)
        self._steady_output = FadingRatio(STEADY)
        self._commits = FadingRatio(STEADY)
        self._drafting = FadingRatio(FADE)
        self._last_commit: float | None = None

    @property
    def cap(self) -> int:
        """See `Controller.cap`."""
        return self._cap

    @property
    def output_rate(self) -> float:
        """Committed tokens/s of late."""
        return self._output.value

    @property
    def gained(self) -> float:
        """Tokens/s beyond one a commit: about what drafts bring."""
        return max(0.0, self._steady_output.value - self._commits.value)

    @property
    def draft_s(self) -> float:
        """Seconds of a proposal: t_d."""
        return self._drafting.value

    def keep(self, depth: int, survival: float) -> Decision:
        """See `Controller.keep`."""
        value = survival - KEEP_FLOOR
        return Decision(value > 0, value, "survival {:.3f} against {}", (survival, KEEP_FLOOR))

    def ship(self, depth: int, survival: float, nbytes: float, prices: Prices = FREE) -> Decision:
        """See `Controller.ship`."""
        return Decision(True, survival, "what is kept is shipped")

    def send(self, gain: float, nbytes: float, prices: Prices = FREE) -> Decision:
        """See `Controller.send`."""
        return Decision(True, gain, "what is shipped leaves at once")

    def confidence(self, guess: Guess) -> float:
        """See `Controller.confidence`."""
        return self.estimates.estimate(guess)

    def drafted(self, seconds: float, proposals: int) -> None:
        """See `Controller.drafted`."""
        self._drafting.add(seconds, proposals)

    def committed(self, now: float, tokens: int, outcomes: Sequence[Outcome]) -> None:
        """See `Controller.committed`."""
        for outcome in outcomes:
            self.estimates.observe(outcome)
        if not outcomes:
            self.estimates.relax(tokens)
        if self._last_commit is not None:
            seconds = min(now - self._last_commit, PAUSE_S)
            self._output.add(tokens, seconds)
            self._steady_output.add(tokens, seconds)
            self._commits.add(1, seconds)
        self._last_commit = now
