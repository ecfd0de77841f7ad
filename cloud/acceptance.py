"""How much of a draft is worth verifying: a session's own acceptance, and the measured cost of rows.

The estimate is per depth and conditional: the chance that depth k is accepted, given that depth k was reached, as an
exponentially weighted mean. A bad or hostile drafter therefore lowers the rows that its own session gets, and costs
others nothing.

Estimates can be wrong, at the start above all, so there is a budget too: drafts may cost a session ALLOWANCE plain
steps and SHARE of its steps beyond what they earned, whatever the estimate says. Rows that cost nothing are free.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

WEIGHT = 0.1
"""Of a new observation."""
PRIOR = 0.7
"""Acceptance assumed of a depth that was never reached."""
PROBE_EVERY = 16
"""Steps after which one draft token is verified although it does not seem to pay, so that an estimate can recover."""

ALLOWANCE = 3.0
"""The budget of a new session, in plain steps."""
SHARE = 0.01
"""What each step adds to the budget."""
SAVINGS = 6.0
"""Most that the budget holds: a drafter that turns bad lives on no more than this."""


class CostCurve:
    """Seconds of a verify step by its rows: linear between measured points, beyond the last by its slope."""

    def __init__(self, points: Sequence[tuple[int, float]]) -> None:
        if not points:
            raise ValueError("a cost curve needs at least one point")
        self._rows = [rows for rows, _ in points]
        self._seconds = [seconds for _, seconds in points]

    def __call__(self, rows: int) -> float:
        """Expected seconds of a step of `rows` rows."""
        if len(self._rows) == 1 or rows <= self._rows[0]:
            return self._seconds[0]
        i = min(max(bisect_left(self._rows, rows), 1), len(self._rows) - 1)
        r0, r1 = self._rows[i - 1 : i + 1]
        s0, s1 = self._seconds[i - 1 : i + 1]
        return s0 + (s1 - s0) * (rows - r0) / (r1 - r0)

    def knee(self, slack: float) -> int:
        """Most rows whose step costs at most `slack` times that of the fewest."""
        return max(rows for rows, seconds in zip(self._rows, self._seconds, strict=True) if seconds <= slack * self(1))


class Acceptance:
    """A session's acceptance by depth, learned from its verify steps."""

    def __init__(self, max_depth: int) -> None:
        self._rates: list[float] = [PRIOR] * max_depth
        self._since_probe = 0
        self._budget = ALLOWANCE
        self._price = 0.0

    def observe(self, drafted: int, accepted: int) -> None:
        """A step verified `drafted` tokens of one path and accepted the first `accepted`."""
        for depth in range(min(drafted, accepted + 1)):
            self._rates[depth] += WEIGHT * ((depth < accepted) - self._rates[depth])
        # An accepted token saves a plain step.
        self._budget = min(SAVINGS, self._budget + SHARE + accepted - self._price)
        self._price = 0.0

    def survival(self, depth: int) -> float:
        """Estimated chance that the first `depth` draft tokens are all accepted."""
        product = 1.0
        for rate in self._rates[:depth]:
            product *= rate
        return product

    def depth_that_pays(self, available: int, cost: CostCurve, other_rows: int = 0) -> int:
        """Draft tokens to verify: the maximum of expected tokens per second within the budget, given the step's other
        rows. The next `observe` is taken to be this step's."""
        plain = cost(other_rows + 1)
        best, best_rate, expected, product = 0, 1.0 / plain, 1.0, 1.0
        affordable = 0
        for depth in range(1, min(available, len(self._rates)) + 1):
            if cost(other_rows + depth + 1) / plain - 1.0 > max(0.0, self._budget):
                break
            affordable = depth
            product *= self._rates[depth - 1]
            expected += product
            # Ties go to the longer draft: its rows are free where rows are padded.
            if expected / cost(other_rows + depth + 1) >= best_rate:
                best, best_rate = depth, expected / cost(other_rows + depth + 1)
        chosen = best or self._probe(affordable)
        self._price = cost(other_rows + chosen + 1) / plain - 1.0
        return chosen

    def enough(self, floor: float = 0.2) -> int:
        """Pending tokens beyond which waiting for more gains little: survival falls below `floor`."""
        depth = 1
        while depth < len(self._rates) and self.survival(depth + 1) >= floor:
            depth += 1
        return depth

    def _probe(self, affordable: int) -> int:
        self._since_probe += 1
        if affordable and self._since_probe >= PROBE_EVERY:
            self._since_probe = 0
            return 1
        return 0
