"""A bandit over draft lengths: UCB-SpecStop (arXiv 2606.20591), with D = 0 as an arm.

An arm k costs (k t_d + C) / E_k per token, E_k = 1 + sum over j <= k of prod over i <= j of min(1, a_i + bonus_i): the
acceptance at each depth, optimistic by sqrt(ln t / 2 n_i) (Hoeffding; half of the published width, which over the
length of an answer plays the longest arm almost always), so arms share what they learn. D = 0 costs what the cloud
takes for a token by itself, t_ar. A round is a commit; the arm with the least cost is played until the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from acespec.edge.brain.adaptive import AdaptiveController
from acespec.edge.brain.controller import AUTO_CAP, Decision
from acespec.edge.brain.prices import FREE, Prices
from acespec.edge.brain.survival import Outcome

MEMORY = 1000.0
"""Visits of a depth after which older ones are halved, so that acceptance may drift."""


class UcbController(AdaptiveController):
    """Plays a length between commits.

    Attributes:
        arm: the length that is played now.
    """

    def __init__(self, cap: int = AUTO_CAP) -> None:
        super().__init__(cap)
        self.arm = cap
        self._rounds = 1
        self._visits = [0.0] * cap
        self._right = [0.0] * cap
        self._prices = FREE

    def extend(self, depth: int, survival: float, prices: Prices = FREE) -> Decision:
        """See `Controller.extend`."""
        self._prices = prices
        if depth < self.arm:
            return Decision(True, survival, "{} of {} drafted", (depth, self.arm))
        return Decision(False, 0.0, "all {} drafted: the arm of least cost", (self.arm,))

    def committed(self, now: float, tokens: int, outcomes: Sequence[Outcome]) -> None:
        """See `Controller.committed`."""
        super().committed(now, tokens, outcomes)
        for outcome in outcomes:
            if outcome.guess.rank == 0 and outcome.guess.depth <= self._cap:
                self._visit(outcome.guess.depth - 1, outcome.right)
        self._rounds += 1
        self.arm = min(range(self._cap + 1), key=self.cost)

    def cost(self, arm: int) -> float:
        """Optimistic seconds per token of a draft length."""
        prices = self._prices
        if arm == 0:
            return prices.verify if prices.verify > 0 else math.inf
        cycle = (prices.cycle or 0.0) + prices.verify
        return (arm * self.draft_s + cycle) / self._expected(arm)

    def _expected(self, arm: int) -> float:
        total = survival = 1.0
        for depth in range(arm):
            survival *= self._optimistic(depth)
            total += survival
        return total

    def _optimistic(self, depth: int) -> float:
        if self._visits[depth] == 0:
            return 1.0
        rounds = min(self._rounds, MEMORY)
        bonus = math.sqrt(math.log(max(2.0, rounds)) / (2 * self._visits[depth]))
        return min(1.0, self._right[depth] / self._visits[depth] + bonus)

    def _visit(self, depth: int, right: bool) -> None:
        if self._visits[depth] >= MEMORY:
            self._visits[depth] /= 2
            self._right[depth] /= 2
        self._visits[depth] += 1
        self._right[depth] += right
