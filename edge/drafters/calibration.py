"""How often guesses of one kind come true: probabilities that mean what they say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Calibration:
    """One success rate per kind of guess ("cell"), learned online and forgetting slowly.

    A cell starts at its prior rate, worth `weight` observations, and follows the last few hundred outcomes: at `memory`
    observations both counts are halved, so it keeps up when the text changes its nature.
    """

    def __init__(self, priors: Sequence[float], weight: float = 6.0, memory: float = 256.0) -> None:
        self._priors = list(priors)
        self._weight = weight
        self._memory = memory
        self._hits = [0.0] * len(priors)
        self._trials = [0.0] * len(priors)

    def estimate(self, cell: int) -> float:
        """Chance in (0, 1) that the next guess of this kind is right."""
        return (self._hits[cell] + self._priors[cell] * self._weight) / (self._trials[cell] + self._weight)

    def observe(self, cell: int, hit: bool) -> None:
        """Counts one outcome."""
        if self._trials[cell] >= self._memory:
            self._hits[cell] /= 2
            self._trials[cell] /= 2
        self._hits[cell] += hit
        self._trials[cell] += 1

    def dump(self) -> NDArray[np.float32]:
        """(2, cells): hits and trials."""
        return np.array([self._hits, self._trials], dtype=np.float32)

    def restore(self, counts: NDArray[np.float32]) -> bool:
        """Takes over dumped counts; False, and no change, if they do not fit these cells."""
        if counts.shape != (2, len(self._priors)) or not np.isfinite(counts).all():
            return False
        if (counts < 0).any() or (counts[0] > counts[1]).any() or (counts[1] > self._memory + 1).any():
            return False
        self._hits, self._trials = (row.tolist() for row in counts.astype(np.float64))
        return True
