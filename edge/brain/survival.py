"""The chance behind a guess: what drafters claim, corrected by what came true.

A first guess is corrected three times in turn: for its source, for its source and confidence bucket, for its source and
depth. Each correction is (right + prior) / (predicted + prior), where what is predicted has the corrections before it,
so that a cell without data says what the coarser ones say. A further guess at the same place (a sibling) has a chance
of its own, given that those before it are wrong: by source and rank, then by what the drafter claims.

All sums fade, so a change of topic is followed within some dozens of tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

FADE = 0.98
"""What one outcome leaves of the earlier ones in its cells: a memory of about 50. Twice that is no faster where nothing
changes, and takes twice as long to follow what does."""
RELAX = 0.995
"""What one committed token leaves of all sums where nothing is drafted, so that a distrusted drafter is tried again."""
BUCKETS = (0.05, 0.15, 0.3, 0.5, 0.65, 0.8, 0.9, 0.96)
"""Edges of the confidence buckets."""
SIDE_BUCKETS = (0.1, 0.3, 0.6)
"""The same for siblings."""
SIDE_PRIORS = (0.5, 0.4, 0.3, 0.2)
"""Chance of the second, third.. guess, those before it being wrong, before anything is known; the last for all further
ones. Shared noise at moderate distance gives .5-.6, .35-.5, .2-.4 (10 % and 20 % misses)."""
DEEPEST = 16
BINS = 10


@dataclass(frozen=True, slots=True)
class Guess:
    """What the estimate goes by.

    Attributes:
        source: what proposed it (`Candidate.source`).
        depth: unverified tokens, itself included.
        claim: the drafter's probability. Of a sibling: given that those before it are wrong.
        rank: its place among the guesses for one position behind one path; 0 is the first.
    """

    source: str
    depth: int
    claim: float
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a guess whose path was right, and all guesses before it at its place wrong.

    `predicted` is the chance that was given to it when it was drafted.
    """

    guess: Guess
    predicted: float
    right: bool


class _Correction:
    """A ratio of fading sums, held at 1 by a prior: `factor`."""

    __slots__ = ("_predicted", "_prior", "_right", "factor")

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._right = self._predicted = 0.0
        self.factor = 1.0

    def add(self, right: bool, predicted: float) -> None:
        self._hold(self._right * FADE + right, self._predicted * FADE + predicted)

    def relax(self, share: float) -> None:
        self._hold(self._right * share, self._predicted * share)

    def _hold(self, right: float, predicted: float) -> None:
        self._right, self._predicted = right, predicted
        self.factor = (right + self._prior) / (predicted + self._prior)


Kind = tuple[str, int, int, int]
"""Source, rank, confidence bucket and depth: guesses of one kind share all their cells."""
Cell = tuple[str, str, int]
"""Name of a correction, source, and which of them."""
PRIORS = {"source": 4.0, "bucket": 8.0, "depth": 16.0, "rank": 2.0, "side": 4.0}
"""Weight of a correction of 1, in predicted right guesses."""


class SurvivalEstimates:
    """Online estimates. One proposal costs some microseconds."""

    def __init__(self) -> None:
        self._cells: dict[Cell, _Correction] = {}
        self._by_kind: dict[Kind, tuple[_Correction, ...]] = {}
        self._error = CalibrationError()

    def estimate(self, guess: Guess) -> float:
        """The chance, in [0, 1], that the guess is right, given its path (of a sibling: and that those before it are
        wrong)."""
        chance = _start(guess)
        for correction in self._corrections(guess):
            chance *= correction.factor
            if chance > 1.0:  # Asked for each guess: twice as fast as min().
                chance = 1.0
        return chance

    def observe(self, outcome: Outcome) -> None:
        """Learn from one guess."""
        self._error.add(outcome.predicted, outcome.right)
        chance = _start(outcome.guess)
        for correction in self._corrections(outcome.guess):
            corrected = min(1.0, chance * correction.factor)
            correction.add(outcome.right, chance)
            chance = corrected

    def relax(self, tokens: int) -> None:
        """Forget a little: `tokens` were committed without guesses to learn from."""
        share = RELAX**tokens
        for correction in self._cells.values():
            correction.relax(share)

    def _corrections(self, guess: Guess) -> tuple[_Correction, ...]:
        """Those of the guess's cells, the coarsest first; one without data is 1."""
        kind = _kind(guess)
        found = self._by_kind.get(kind)
        if found is None:
            found = self._by_kind[kind] = tuple(map(self._correction, _cells(kind)))
        return found

    def _correction(self, cell: Cell) -> _Correction:
        return self._cells.setdefault(cell, _Correction(PRIORS[cell[0]]))

    @property
    def calibration_error(self) -> float:
        """Expected calibration error of all that was predicted so far: see `CalibrationError`."""
        return self._error.value

    @property
    def observed(self) -> int:
        """Guesses that were learned from."""
        return self._error.count


class CalibrationError:
    """Expected calibration error over equal bins of the predicted chance: the mean of |share right - mean chance| by
    bin, weighted by the guesses in it (Naeini, Cooper and Hauskrecht, AAAI 2015)."""

    def __init__(self, bins: int = BINS) -> None:
        self._counts = [0] * bins
        self._rights = [0] * bins
        self._sums = [0.0] * bins

    @property
    def count(self) -> int:
        """Guesses that were counted."""
        return sum(self._counts)

    @property
    def value(self) -> float:
        """The error in [0, 1]; 0 before anything is known."""
        gaps = (abs(right - total) for right, total in zip(self._rights, self._sums, strict=True))
        return sum(gaps) / self.count if self.count else 0.0

    def add(self, predicted: float, right: bool) -> None:
        """Count one guess."""
        at = min(int(predicted * len(self._counts)), len(self._counts) - 1)
        self._counts[at] += 1
        self._rights[at] += right
        self._sums[at] += predicted


def expected_calibration_error(outcomes: Iterable[Outcome]) -> float:
    """The error of these predictions: see `CalibrationError`."""
    error = CalibrationError()
    for outcome in outcomes:
        error.add(outcome.predicted, outcome.right)
    return error.value


def _start(guess: Guess) -> float:
    """The chance before any correction."""
    return guess.claim if guess.rank == 0 else SIDE_PRIORS[min(guess.rank, len(SIDE_PRIORS)) - 1]


def _kind(guess: Guess) -> Kind:
    """What of a guess its cells go by."""
    if guess.rank:
        return guess.source, min(guess.rank, len(SIDE_PRIORS)), bisect_right(SIDE_BUCKETS, guess.claim), 0
    return guess.source, 0, bisect_right(BUCKETS, guess.claim), min(guess.depth, DEEPEST)


def _cells(kind: Kind) -> tuple[Cell, ...]:
    source, rank, bucket, depth = kind
    if rank:
        return ("rank", source, rank), ("side", source, rank * len(BUCKETS) + bucket)
    return ("source", source, 0), ("bucket", source, bucket), ("depth", source, depth)
