"""The text of a target that is only replayed: known to both ends, so that the verifier can commit it and a drafter
guess it with a chosen accuracy.

`SyntheticText` is a hash of (seed, position). `RecordedText` is what a real model once said, from a file of JSON lines,
each an object with `ids` (the generated part) and, for drafters, `ranks` and `probabilities` (`replay_accuracy.py`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import zstandard

from acespec.proto.errors import UsageError

FIRST_WORD = 256
"""Ids below are bytes, of which replayed prompts are made; synthetic texts keep off them."""
SMALLEST_VOCABULARY = FIRST_WORD + 4
_MASK = (1 << 64) - 1


class ReplayText(Protocol):
    """The target's f of a replayed model: which id stands at a position, whatever came before."""

    def token(self, seed: int, position: int, prompt_len: int) -> int:
        """The id at `position` of a turn with this seed whose generated part begins at `prompt_len`."""

    @property
    def name(self) -> str:
        """Differs wherever the text does."""


def end_id(vocab_size: int) -> int:
    """The id that ends a replayed text: the last of the vocabulary."""
    return vocab_size - 1


def mix(*keys: int) -> int:
    """64 well-mixed bits of the keys: the output function of SplitMix64 (Steele, Lea and Flood, 2014) over each."""
    state = 0
    for key in keys:
        state = (state ^ key) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


@dataclass(frozen=True, slots=True)
class SyntheticText:
    """Endless: uniform ids at or above FIRST_WORD, never the end."""

    vocab_size: int

    def __post_init__(self) -> None:
        if self.vocab_size < SMALLEST_VOCABULARY:
            raise UsageError(f"a replayed vocabulary needs at least {SMALLEST_VOCABULARY} ids, not {self.vocab_size}")

    @property
    def name(self) -> str:
        """See `ReplayText.name`."""
        return f"synthetic-{self.vocab_size}"

    def token(self, seed: int, position: int, prompt_len: int) -> int:
        """See `ReplayText.token`."""
        return FIRST_WORD + mix(seed, position) % (end_id(self.vocab_size) - FIRST_WORD)


@dataclass(frozen=True, slots=True)
class RecordedText:
    """One of `texts`, chosen by the seed; behind its last id, the end."""

    texts: tuple[tuple[int, ...], ...]
    vocab_size: int

    def __post_init__(self) -> None:
        highest = max((i for text in self.texts for i in text), default=-1)
        if highest < 0:
            raise UsageError("a recorded text without ids cannot be replayed: record some tokens first")
        if highest >= end_id(self.vocab_size):
            raise UsageError(
                f"the recorded ids go up to {highest}: replay them with a vocabulary of {highest + 2} or more"
            )

    @property
    def name(self) -> str:
        """See `ReplayText.name`."""
        return f"recorded-{self.vocab_size}-{mix(*(i for text in self.texts for i in (len(text), *text))):016x}"

    def token(self, seed: int, position: int, prompt_len: int) -> int:
        """See `ReplayText.token`."""
        text = self.texts[seed % len(self.texts)]
        at = position - prompt_len
        return text[at] if 0 <= at < len(text) else end_id(self.vocab_size)


@dataclass(frozen=True, slots=True)
class Recording:
    """One line of a replay file. `ranks` and `probabilities` are empty or as long as `ids`.

    Attributes:
        ids: what the target said.
        ranks: of each id, its rank in the drafter's list: 0 if the drafter's first guess was right.
        probabilities: the drafter's, of its first guess.
    """

    ids: tuple[int, ...]
    ranks: tuple[int, ...] = ()
    probabilities: tuple[float, ...] = ()


def read_recordings(path: Path) -> tuple[Recording, ...]:
    """All lines of a replay file, which may be compressed with zstandard (`.zst`).

    Raises:
        UsageError: it cannot be read, or a line is not what it should be; the message names the line.
    """
    try:
        data = path.read_bytes()
        text = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read() if path.suffix == ".zst" else data
        lines = text.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError, zstandard.ZstdError) as error:
        raise UsageError(f"cannot read the recording {path}: {error}") from error
    return tuple(_recording(line, f"{path}, line {n}") for n, line in enumerate(lines, 1) if line.strip())


def replay_text(path: Path | None, vocab_size: int) -> ReplayText:
    """The texts of a replay file, or the synthetic one if there is none."""
    if path is None:
        return SyntheticText(vocab_size)
    return RecordedText(tuple(recording.ids for recording in read_recordings(path)), vocab_size)


def _recording(line: str, where: str) -> Recording:
    try:
        fields = json.loads(line)
        ids, ranks = _whole(fields["ids"]), _whole(fields.get("ranks", ()))
        probabilities = tuple(float(p) for p in fields.get("probabilities", ()))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{where}: not an object with a list 'ids' of whole numbers ({error})") from error
    if any(extra and len(extra) != len(ids) for extra in (ranks, probabilities)):
        raise UsageError(f"{where}: 'ranks' and 'probabilities' must be as long as 'ids', which has {len(ids)}")
    return Recording(ids, ranks, probabilities)


def _whole(values: Sequence[object]) -> tuple[int, ...]:
    bad = next((v for v in values if not isinstance(v, int) or v < 0), None)
    if bad is not None:
        raise ValueError(f"{bad!r} is not a whole number from 0 on")
    return tuple(v for v in values if isinstance(v, int))
