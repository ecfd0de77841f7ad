"""How often a replayed drafter is right: a chance by depth, or what a real one did at each position.

Whether the guess at a position comes true is fixed by (seed, position) and, where chances differ by depth, by the
depth: one uniform number a position is compared with the chance. So a position that is drafted again is judged as
before.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from acespec.proto.errors import UsageError
from acespec.proto.replay_text import Recording, mix, read_recordings

_STREAM = 0xACC
_TWO_64 = float(1 << 64)


class Accuracy(Protocol):
    """Decides guesses. `depth` counts unverified tokens from 1, the guess included."""

    def right(self, seed: int, position: int, prompt_len: int, depth: int) -> bool:
        """Is the guess right, given that everything before it is?"""

    def claim(self, seed: int, position: int, prompt_len: int, depth: int) -> float:
        """The probability that the drafter states for it."""


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

    def _chance(self, depth: int) -> float:
        return self.chances[min(depth, len(self.chances)) - 1]


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

    def _of(self, seed: int) -> Recording:
        return self.recordings[seed % len(self.recordings)]


def read_accuracy(text: str) -> tuple[Accuracy, Path | None]:
    """What `--acceptance` says: `0.8`, `0.8,0.75,0.7` or a trace file, which is returned too, for its ids.

    Raises:
        UsageError: it is neither.
    """
    try:
        return DepthAccuracy(tuple(float(part) for part in text.split(","))), None
    except ValueError:
        path = Path(text)
    if not path.is_file():
        raise UsageError(f"--acceptance {text}: neither numbers separated by commas nor a trace file")
    return RecordedAccuracy(read_recordings(path)), path
