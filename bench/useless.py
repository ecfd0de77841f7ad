"""A drafter whose guesses are almost never right, and which says that it is sure: the price of drafting in vain."""

from __future__ import annotations

import random
from collections.abc import Sequence

from acespec.edge.drafters.base import Candidate, QuietDrafter, TurnContext


class UselessDrafter(QuietDrafter):
    """Uniform ids at a claimed probability of 0.9; a pure function of the path's length, so that runs repeat."""

    name = "random"

    def begin(self, turn: TurnContext) -> None:
        """See `Drafter.begin`."""
        self._vocab_size = turn.vocab_size

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        """See `Drafter.propose`."""
        dice = random.Random(len(path))
        return [Candidate(dice.randrange(self._vocab_size), 0.9, "random") for _ in range(k)]
