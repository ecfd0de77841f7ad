"""How long a verifier's steps take: t_v(rows, sessions, context), measured or prescribed.

The scheduler plans by it, `acespec-verifier bench` measures it, the replay backend and the simulator act it out.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from acespec.proto.errors import UsageError

KNEE = 1.5
"""Rows are worth adding to a step while it takes at most this many times a step of one row."""


@dataclass(frozen=True, slots=True)
class TimingProfile:
    """A target on its hardware.

    Attributes:
        curve: (rows, seconds) of a verify step of one session, ascending; linear between, beyond the last by its
            slope. On a short context, or without any if `position_s` counts it.
        session_s: what each further session adds to a step.
        prefill_rate: prompt rows per second, on top of the step that they come with.
        source: where the figures come from.
        position_s: what each position that a verify row looks back on adds to a step.
    """

    name: str
    curve: tuple[tuple[int, float], ...]
    session_s: float
    prefill_rate: float
    source: str
    position_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.curve:
            raise ValueError("a timing profile needs at least one point")
        if not all(a < b and s <= t for (a, s), (b, t) in pairwise([(0, 0.0), *self.curve])):
            raise ValueError("the points of a curve must rise in rows and not fall in seconds")
        figures = (self.curve[0][1], self.curve[-1][1], self.session_s, self.prefill_rate, self.position_s)
        if not all(math.isfinite(f) and f >= 0 for f in figures) or not self.curve[0][1] or not self.prefill_rate:
            raise ValueError("times must be finite and not negative; neither a step nor the prefill rate can be 0")

    def step_s(self, rows: int, sessions: int = 1, positions: int = 0) -> float:
        """t_v in seconds of a step of `rows` rows of `sessions` sessions; `positions`: summed over rows, how many each
        looks back on."""
        points = self.curve
        if len(points) == 1 or rows <= points[0][0]:
            base = points[0][1]
        else:
            i = min(bisect_right([r for r, _ in points], rows), len(points) - 1)
            (r0, s0), (r1, s1) = points[i - 1], points[i]
            base = s0 + (s1 - s0) * (rows - r0) / (r1 - r0)
        return base + self.session_s * max(0, sessions - 1) + self.position_s * positions

    def prefill_s(self, rows: int) -> float:
        """Seconds that `rows` prompt rows add to a step."""
        return rows / self.prefill_rate

    def knee(self, slack: float = KNEE) -> int:
        """Most rows whose step costs at most `slack` times a step of one row."""
        limit = slack * self.step_s(1)
        last = max(rows for rows, seconds in self.curve if seconds <= limit)
        while last < 4 * self.curve[-1][0] and self.step_s(last + 1) <= limit:
            last += 1
        return last

    def save(self, path: Path) -> None:
        """Write JSON. Raises UsageError if `path` cannot be written."""
        try:
            path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from error

    @classmethod
    def load(cls, path: Path) -> TimingProfile:
        """Read what `save` wrote. Raises UsageError for anything else."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            curve = tuple((int(rows), float(seconds)) for rows, seconds in data.pop("curve"))
            name, source = str(data.pop("name")), str(data.pop("source"))
            return cls(name=name, curve=curve, source=source, **{key: float(value) for key, value in data.items()})
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"{path} is no timing profile ({error}); make one with acespec-verifier bench") from error
