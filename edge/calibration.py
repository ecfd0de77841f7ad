"""Turns what drafters claim into chances that hold: one correction per depth, learned from commits.

A drafter's probability is compared with what the target really took. The correction at a depth is (right + prior) /
(claimed + prior), both sums fading, so it follows a change of topic within some dozens of tokens.
"""

from __future__ import annotations

from acespec.edge.draft_tree import Outcome

FADE = 0.97
"""What one outcome leaves of the earlier ones: a memory of about 33."""
PRIOR = 4.0
"""Claims counted as kept before anything is known."""
RELAX = 0.995
"""What one committed token leaves of the sums where nothing is drafted, so that a distrusted drafter is tried again."""


class DepthCalibration:
    """Corrections for depths 1 .. depths; deeper ones share the last."""

    def __init__(self, depths: int = 16) -> None:
        self._right = [0.0] * depths
        self._claimed = [0.0] * depths

    def estimate(self, depth: int, probability: float) -> float:
        """The chance, in [0, 1], that a guess at `depth` (from 1) claimed at `probability` is right, if its path is."""
        cell = self._cell(depth)
        factor = (self._right[cell] + PRIOR) / (self._claimed[cell] + PRIOR)
        return min(1.0, probability * factor)

    def observe(self, outcome: Outcome) -> None:
        """Learn from one guess."""
        cell = self._cell(outcome.depth)
        self._right[cell] = self._right[cell] * FADE + outcome.right
        self._claimed[cell] = self._claimed[cell] * FADE + outcome.probability

    def relax(self, tokens: int) -> None:
        """Forget a little: `tokens` were committed without guesses to learn from."""
        share = RELAX**tokens
        self._right = [value * share for value in self._right]
        self._claimed = [value * share for value in self._claimed]

    def _cell(self, depth: int) -> int:
        return min(depth, len(self._right)) - 1
