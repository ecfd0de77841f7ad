"""What a step will take: the verifier's timing profile, scaled to what steps really take of late (sans-IO)."""

from __future__ import annotations

from acespec.proto.timing_profile import TimingProfile

WEIGHT = 0.05
"""Of a new step in the scale."""
BOUNDS = (0.25, 8.0)
"""The scale's: a profile that is further off was measured under conditions that say nothing."""
TABLE_ROWS = 512


class StepCost:
    """Expected seconds of steps."""

    def __init__(self, profile: TimingProfile) -> None:
        self._profile = profile
        self._table = [profile.step_s(rows) for rows in range(TABLE_ROWS)]
        self._scale = 1.0

    def __call__(self, rows: int, sessions: int = 1, positions: int = 0, prompt_rows: int = 0) -> float:
        """Seconds of a step of `rows` verify rows of `sessions` that look back on `positions` in all, and a prefill
        chunk of `prompt_rows`."""
        profile = self._profile
        base = self._table[rows] if rows < TABLE_ROWS else profile.step_s(rows)
        more = profile.session_s * (sessions - 1 if sessions > 1 else 0) + profile.position_s * positions
        return self._scale * (base + more + (prompt_rows / profile.prefill_rate if prompt_rows else 0.0))

    def ladder(self, most: int, rows: int, sessions: int, positions: int, prompt_rows: int, start: int) -> list[float]:
        """Seconds of a step, given as for a call, if a block at `start` joins it with 0, 1, .. `most` rows."""
        if rows + most < TABLE_ROWS and not self._profile.position_s:
            fixed = self(rows, sessions + 1, positions, prompt_rows) - self._scale * self._table[rows]
            joined = [self._scale * base + fixed for base in self._table[rows + 1 : rows + most + 1]]
        else:
            joined = [self(rows + n, sessions + 1, positions + n * start, prompt_rows) for n in range(1, most + 1)]
        return [self(rows, sessions, positions, prompt_rows), *joined]

    def observe(self, expected: float, seconds: float) -> None:
        """A step that was expected to take `expected` took `seconds`."""
        if expected > 0:
            low, high = BOUNDS
            ratio = min(2.0, max(0.5, seconds / expected))
            self._scale = min(high, max(low, self._scale * (1.0 + WEIGHT * (ratio - 1.0))))
