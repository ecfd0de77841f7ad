"""Draft while the drafter is confident: the rule of PipeSD (arXiv 2605.13319).

With c the product of what the drafter claims along the path, a draft ends when c <= R1, or behind a token of
probability q <= R2. R1 has a closed form, output rate x t_d: the rate rule with claims in the place of calibrated
chances.
"""

from __future__ import annotations

from acespec.edge.brain.adaptive import KEEP_FLOOR, AdaptiveController
from acespec.edge.brain.controller import Decision
from acespec.edge.brain.prices import FREE, Prices
from acespec.edge.brain.survival import Guess

LEAST = 0.3
"""R2."""


class ConfidenceController(AdaptiveController):
    """Believes the drafter."""

    def extend(self, depth: int, survival: float, prices: Prices = FREE) -> Decision:
        """See `Controller.extend`: a token at or below R2 has no chance that anything could follow (`confidence`)."""
        least = max(KEEP_FLOOR, self.output_rate * self.draft_s)
        if depth >= self._cap:
            return Decision(False, 0.0, "{} tokens ahead is the cap", (depth,))
        if depth and survival <= least:
            return Decision(False, survival - least, "confidence {:.3f} is below {:.3f}", (survival, least))
        return Decision(True, survival - least, "confidence {:.3f} at depth {}", (survival, depth))

    def keep(self, depth: int, survival: float) -> Decision:
        """See `Controller.keep`."""
        return Decision(survival > 0, survival, "whatever may be right is kept")

    def confidence(self, guess: Guess) -> float:
        """See `Controller.confidence`: the claim. Siblings are not part of the rule and go by what was learned."""
        if guess.rank:
            return super().confidence(guess)
        return guess.claim if guess.claim > LEAST else min(guess.claim, KEEP_FLOOR)
