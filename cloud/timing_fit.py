"""From timed steps to a timing profile: a curve over rows, one constant per session and one per position."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from acespec.proto.timing_profile import TimingProfile

LEAST_SHARE = 0.05
"""Of a prefill chunk's time that its rows count for, whatever the difference to a plain step says."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of a step of `rows` rows of `sessions` sessions on `context` positions each: quartiles over repeats."""

    rows: int
    sessions: int
    context: int
    low: float
    median: float
    high: float

    @property
    def positions(self) -> int:
        """Positions that its rows look back on, together."""
        return self.rows * self.context


@dataclass(frozen=True, slots=True)
class FitError:
    """How far a profile is from what was measured, relative to it."""

    median: float
    worst: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """The grid of a machine.

    Attributes:
        chunk_rows, chunk_s: rows and median seconds of a prefill chunk at position 0, alone in its step.
        notes: what was asked for and left out, and why.
    """

    points: tuple[Timed, ...]
    repeats: int
    chunk_rows: int
    chunk_s: float
    notes: tuple[str, ...] = ()

    @property
    def prefill_rate(self) -> float:
        """Prompt tokens per second of chunks that are alone in their steps."""
        return self.chunk_rows / max(self.chunk_s, 1e-12)

    @property
    def plain_rate(self) -> float:
        """Tokens per second of plain decoding: one row, one session, the shortest context."""
        return 1 / self.curve()[0].median

    def curve(self) -> list[Timed]:
        """The points of one session on the shortest context, by rows."""
        shortest = min(point.context for point in self.points)
        lone = [p for p in self.points if p.sessions == 1 and p.context == shortest]
        return sorted(lone, key=lambda point: point.rows)

    def profile(self, name: str) -> TimingProfile:
        """The profile nearest to the medians: the lone session's curve, made to ascend, and constants by least squares
        of the relative errors, none negative."""
        curve = self.curve()
        steps = list(accumulate((max(p.median, 1e-9) for p in curve), max))
        seconds_at = dict(zip((p.rows for p in curve), steps, strict=True))
        session_s, position_s = self._constants(seconds_at)
        # The context under the curve is counted by position_s from now on; a step must still take some time.
        position_s = min(position_s, *(0.9 * s / p.positions for p, s in zip(curve, steps, strict=True)))
        steps = list(accumulate((s - position_s * p.positions for p, s in zip(curve, steps, strict=True)), max))
        return TimingProfile(
            name=name,
            curve=tuple((p.rows, s) for p, s in zip(curve, steps, strict=True)),
            session_s=session_s,
            prefill_rate=added_rate(self.chunk_rows, self.chunk_s, steps[0]),
            source=f"acespec-verifier bench, on that machine: {len(self.points)} points, medians of {self.repeats}",
            position_s=position_s,
        )

    def fit_error(self, profile: TimingProfile) -> FitError:
        """How well a profile describes the medians."""
        errors = [abs(profile.step_s(p.rows, p.sessions, p.positions) / p.median - 1) for p in self.points if p.median]
        return FitError(statistics.median(errors), max(errors))

    def _constants(self, seconds_at: dict[int, float]) -> tuple[float, float]:
        """(per further session, per position): what the lone session on the shortest context does not explain."""
        base = min(point.context for point in self.points)
        others = [p for p in self.points if p.rows in seconds_at and (p.sessions, p.context) != (1, base)]
        weights = [1 / max(p.median, 1e-9) for p in others]
        wanted = [(p.median - seconds_at[p.rows]) * w for p, w in zip(others, weights, strict=True)]
        per_session = [(p.sessions - 1) * w for p, w in zip(others, weights, strict=True)]
        per_position = [p.rows * (p.context - base) * w for p, w in zip(others, weights, strict=True)]
        session_s, position_s = not_negative([per_session, per_position], wanted)
        return session_s, position_s


def not_negative(columns: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """Least squares with coefficients of at least 0: those that come out negative are held at 0, the rest fitted again.

    A column of zeros gets 0.
    """
    free = [i for i, column in enumerate(columns) if any(column)]
    while free:
        matrix = np.array([columns[i] for i in free], dtype=np.float64).T
        found = np.linalg.lstsq(matrix, np.asarray(wanted, dtype=np.float64), rcond=None)[0]
        if (found >= 0).all():
            values = dict(zip(free, found.tolist(), strict=True))
            return [values.get(i, 0.0) for i in range(len(columns))]
        del free[int(found.argmin())]
    return [0.0] * len(columns)


def added_rate(rows: int, seconds: float, step_s: float) -> float:
    """Prompt rows per second on top of a step, from a chunk that took `seconds` and one row that took `step_s`."""
    return rows / max(seconds - step_s, LEAST_SHARE * seconds, 1e-9)
