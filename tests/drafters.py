"""Drafters for tests only: random, hostile, and one that knows the answer to a chosen accuracy."""

from __future__ import annotations

import random
from collections.abc import Sequence

from acespec.edge.drafters.base import Candidate, QuietDrafter, TurnContext


class RandomDrafter(QuietDrafter):
    """Uniform ids with random probabilities; a pure function of (seed, path length), so runs repeat."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.seed = seed
        self.vocab_size = 2

    def begin(self, turn: TurnContext) -> None:
        self.vocab_size = turn.vocab_size

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        dice = _dice(self.seed, len(path))
        tokens = dice.sample(range(self.vocab_size), min(k, self.vocab_size))
        probabilities = sorted((dice.random() for _ in tokens), reverse=True)
        return [Candidate(t, p, "lm") for t, p in zip(tokens, probabilities, strict=True)]


class OracleDrafter(QuietDrafter):
    """Knows the ids at positions start.. and tells each with chance `accuracy`; otherwise it is surely wrong.

    Whether a position is told right is fixed by (seed, position). Beyond the known ids it is silent.
    """

    name = "oracle"

    def __init__(self, ids: Sequence[int], accuracy: float = 1.0, *, start: int = 0, seed: int = 0) -> None:
        super().__init__()
        self.ids = list(ids)
        self.accuracy = accuracy
        self.start = start
        self.seed = seed
        self.vocab_size = 2

    def begin(self, turn: TurnContext) -> None:
        self.vocab_size = turn.vocab_size

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        at = len(path) - self.start
        if not 0 <= at < len(self.ids):
            return []
        truth = self.ids[at]
        right = _dice(self.seed, len(path)).random() < self.accuracy
        first = truth if right else (truth + 1) % self.vocab_size
        others = [(truth + step) % self.vocab_size for step in range(2, min(k, self.vocab_size - 1) + 1)]
        return [Candidate(first, self.accuracy, "lm")] + [Candidate(t, 0.01, "lm") for t in others]


class AdversarialDrafter(QuietDrafter):
    """Wrong on purpose and sure of it.

    With `truth` (ids at positions start..) it never proposes the right token. With `wild` it also breaks the rules
    of `Drafter.propose`: ids outside the vocabulary, duplicates, far more than k, impossible probabilities.
    """

    name = "adversarial"

    def __init__(
        self, truth: Sequence[int] = (), *, start: int = 0, seed: int = 0, wild: bool = False, huge: int = 300
    ) -> None:
        super().__init__()
        self.truth = list(truth)
        self.start = start
        self.seed = seed
        self.wild = wild
        self.huge = huge
        self.vocab_size = 2

    def begin(self, turn: TurnContext) -> None:
        self.vocab_size = turn.vocab_size

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        dice = _dice(self.seed, len(path))
        if self.wild and dice.random() < 0.3:
            return self._nonsense(dice)
        count = min(k, self.vocab_size - 1)
        tokens = dice.sample([t for t in range(self.vocab_size) if t != self._true_at(len(path))], count)
        return [Candidate(t, 0.999, "lm") for t in tokens]

    def _true_at(self, position: int) -> int | None:
        at = position - self.start
        return self.truth[at] if 0 <= at < len(self.truth) else None

    def _nonsense(self, dice: random.Random) -> list[Candidate]:
        count = dice.choice([1, 2, self.huge])
        tokens = [dice.choice([-1, 0, self.vocab_size, 2**31, 7 % self.vocab_size]) for _ in range(count)]
        return [Candidate(t, dice.choice([-1.0, 0.0, 1.0, 7.5, float("nan")]), "lm") for t in tokens]


def _dice(seed: int, position: int) -> random.Random:
    return random.Random(seed * 1_000_003 + position)
