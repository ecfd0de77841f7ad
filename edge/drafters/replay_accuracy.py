"""How often a replayed drafter is right: a chance by depth, chances that change on the way through an answer, or what a
real one did at each position.

Where its first guess is wrong, a further one may be right: with the chances `SIDES`, or where a real one had it.

Whether the guess at a position comes true is fixed by (seed, position) and, where chances differ by depth, by the
depth: one uniform number a position is compared with the chance. So a position that is drafted again is judged as
before.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from acespec.proto.errors import UsageError
from acespec.proto.replay_text import Recording, mix, read_recordings

SIDES = (0.5, 0.4, 0.25, 0.2)
"""Chance of the second, third.. guess where all before it are wrong; the last for all further ones. At a = .8 the best
2, 3, 4, 8 then hold the target's token in 90, 94, 95.5, 98 % of cases. Shared noise gives 90, 93.5, 95, 97.5 % at .81
(measured on random rows of 2,000 ids), real pairs at T = 0.7 and 1.0 somewhat more (.81: 91, 96 % of 2 and 4)."""
_STREAM = 0xACC
_SIDE_STREAM = 0x51D
_TWO_64 = float(1 << 64)


class Accuracy(Protocol):
    """Decides guesses. `depth` counts unverified tokens from 1, the guess included."""

    def right(self, seed: int, position: int, prompt_len: int, depth: int) -> bool:
        """Is the guess right, given that everything before it is?"""

    def claim(self, seed: int, position: int, prompt_len: int, depth: int) -> float:
        """The probability that the drafter states for it."""

    def rank(self, seed: int, position: int, prompt_len: int, depth: int, most: int) -> int:
        """Which guess is right, given that everything before the position is: 0 if the first; `most` if none below."""


@dataclass(frozen=True, slots=True)
class DepthAccuracy:
    """A chance for each depth; deeper ones share the last."""

    chances: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.chances or not all(0.0 <= chance <= 1.0 for chance in self.chances):
            raise UsageError("acceptance must be one or more numbers from 0 to 1, separated by commas, or a trace file")

    def right(self, seed: int, position: int, prompt_len: int, depth: int) -> bool:
        """See `Accuracy.right`."""
        return mix(_STREAM, seed, position) / _TWO_64 < self._chance(depth)

    def claim(self, seed: int, position: int, prompt_len: int, depth: int) -> float:
        """See `Accuracy.claim`: an honest drafter's."""
        return self._chance(depth)

    def rank(self, seed: int, position: int, prompt_len: int, depth: int, most: int) -> int:
        """See `Accuracy.rank`: behind a wrong first guess by `SIDES`."""
        if self.right(seed, position, prompt_len, depth):
            return 0
        left = mix(_SIDE_STREAM, seed, position) / _TWO_64
        for rank in range(1, most):
            if left < (chance := side_chance(rank)):
                return rank
            left = (left - chance) / (1.0 - chance)
        return most

    def _chance(self, depth: int) -> float:
        return self.chances[min(depth, len(self.chances)) - 1]


@dataclass(frozen=True, slots=True)
class ChangingAccuracy:
    """One chance after another: from `starts[i]` tokens of the answer on, `chances[i]`. The first start is 0.

    It is the position of a guess that counts, not the time at which it is drafted. The drafter does not notice: it goes
    on claiming its first chance, so that only commits can tell what its guesses are worth now.
    """

    starts: tuple[int, ...]
    chances: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.starts[:1] != (0,) or list(self.starts) != sorted(set(self.starts)):
            raise UsageError("acceptance that changes is written CHANCE@POSITION; positions ascend, the first is 0")
        if len(self.starts) != len(self.chances):
            raise UsageError(f"{len(self.starts)} positions for {len(self.chances)} chances: give one each")
        DepthAccuracy(self.chances)

    def right(self, seed: int, position: int, prompt_len: int, depth: int) -> bool:
        """See `Accuracy.right`."""
        return self.at(position - prompt_len).right(seed, position, prompt_len, depth)

    def claim(self, seed: int, position: int, prompt_len: int, depth: int) -> float:
        """See `Accuracy.claim`: what was true at first."""
        return self.chances[0]

    def rank(self, seed: int, position: int, prompt_len: int, depth: int, most: int) -> int:
        """See `Accuracy.rank`."""
        return self.at(position - prompt_len).rank(seed, position, prompt_len, depth, most)

    def at(self, answered: int) -> DepthAccuracy:
        """What holds for the token behind so many of the answer."""
        return DepthAccuracy((self.chances[max(0, bisect_right(self.starts, answered) - 1)],))


@dataclass(frozen=True, slots=True)
class RecordedAccuracy:
    """What a real drafter did: right where its rank of the target's id was 0. Behind a recording it is right."""

    recordings: tuple[Recording, ...]

    def __post_init__(self) -> None:
        if not self.recordings or not all(recording.ranks for recording in self.recordings):
            raise UsageError("the trace has no 'ranks' (of the target's ids in the drafter's list): record it anew")

    def right(self, seed: int, position: int, prompt_len: int, depth: int) -> bool:
        """See `Accuracy.right`."""
        ranks, at = self._of(seed).ranks, position - prompt_len
        return ranks[at] == 0 if 0 <= at < len(ranks) else True

    def claim(self, seed: int, position: int, prompt_len: int, depth: int) -> float:
        """See `Accuracy.claim`: the recorded one; without any, the share of right guesses."""
        recording, at = self._of(seed), position - prompt_len
        if 0 <= at < len(recording.probabilities):
            return recording.probabilities[at]
        return recording.ranks.count(0) / len(recording.ranks)

    def rank(self, seed: int, position: int, prompt_len: int, depth: int, most: int) -> int:
        """See `Accuracy.rank`: the recorded one."""
        ranks, at = self._of(seed).ranks, position - prompt_len
        return min(ranks[at], most) if 0 <= at < len(ranks) else 0

    def _of(self, seed: int) -> Recording:
        return self.recordings[seed % len(self.recordings)]


def side_chance(rank: int) -> float:
    """Chance of the guess of this rank, from 1, where all before it are wrong."""
    return SIDES[min(rank, len(SIDES)) - 1]


def read_accuracy(text: str) -> tuple[Accuracy, Path | None]:
    """What `--acceptance` says: `0.8`, `0.8,0.75,0.7` by depth, `0.9@0,0.5@300` by position, or a trace file, which is
    returned too, for its ids.

    Raises:
        UsageError: it is neither.
    """
    path = Path(text)
    try:
        if "@" in text and not path.is_file():
            return _changing(text), None
        return DepthAccuracy(tuple(float(part) for part in text.split(","))), None
    except ValueError:
        pass
    if not path.is_file():
        raise UsageError(
            f"--acceptance {text}: neither numbers separated by commas (0.9,0.8), nor such with the positions from "
            "which they hold (0.9@0,0.5@300), nor a trace file"
        )
    return RecordedAccuracy(read_recordings(path)), path


def _changing(text: str) -> ChangingAccuracy:
    parts = [part.partition("@") for part in text.split(",")]
    return ChangingAccuracy(tuple(int(start) for _, _, start in parts), tuple(float(chance) for chance, _, _ in parts))
