"""The rate rule: the next token must earn its time, its bits and its row.

Draft while survival > rate x t_d, where rate is the output rate and t_d the time of one proposal (Dinkelbach's form of
the optimal stop for tokens per second, [D t_d + C] / E).
"""

from __future__ import annotations

from collections.abc import Sequence

from acespec.edge.averages import FadingRatio
from acespec.edge.controller import AUTO_CAP, Decision
from acespec.edge.prices import FREE, Prices
from acespec.edge.survival import Guess, Outcome, SurvivalEstimates

SHIP_FLOOR = 0.02
"""A guess less likely than this is not worth its 2 bytes and its verify row, however fast it was drafted."""
FADE = 0.8
"""What a new sample leaves of the older ones in the averages of output rate and drafting time."""
PAUSE_S = 1.0
"""A longer gap between commits is a pause (an outage, a person typing), not a slow output."""


class RateController:
    """The rate rule over calibrated survival.

    Attributes:
        estimates: what guesses are worth.
    """

    def __init__(self, cap: int = AUTO_CAP) -> None:
        self.estimates = SurvivalEstimates()
        self._cap = cap
        self._output = FadingRatio(FADE)
        self._drafting = FadingRatio(FADE)
        self._last_commit: float | None = None

    @property
    def cap(self) -> int:
        """See `Controller.cap`."""
        return self._cap

    @property
    def threshold(self) -> float:
        """Survival at which a token just earns its time: output rate x drafting time."""
        return max(SHIP_FLOOR, self._output.value * self._drafting.value)

    def extend(self, depth: int, survival: float, prices: Prices = FREE) -> Decision:
        """See `Controller.extend`."""
        value = survival - self.threshold
        if depth >= self._cap:
            return Decision(False, 0.0, f"{depth} tokens ahead is the cap")
        if depth > 0 and value <= 0:
            return Decision(False, value, f"survival {survival:.3f} at depth {depth} is below {self.threshold:.3f}")
        return Decision(True, value, f"survival {survival:.3f} at depth {depth} is above {self.threshold:.3f}")

    def keep(self, depth: int, survival: float) -> Decision:
        """See `Controller.keep`."""
        return Decision(survival > SHIP_FLOOR, survival - SHIP_FLOOR, f"survival {survival:.3f} against {SHIP_FLOOR}")

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
            self._output.add(tokens, min(now - self._last_commit, PAUSE_S))
        self._last_commit = now
