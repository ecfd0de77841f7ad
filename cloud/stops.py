"""Where an answer ends: stop ids, stop strings and limits, checked on committed tokens only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from acespec.proto.messages import FinishReason


class TextDecoder(Protocol):
    """Turns token ids into text, a few at a time."""

    def push(self, ids: Sequence[int]) -> str:
        """The text that became certain with `ids`."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why and where: `text_end` counts UTF-8 bytes of the generated text that belong to the answer."""

    reason: FinishReason
    text_end: int | None = None


class StopRule:
    """Watches one turn's generated tokens, in order, and says at which of them it ends.

    The first `min_tokens` tokens end nothing: a stop string that they complete is never looked at again, one that a
    later token completes counts wherever it began. All is a function of the generated tokens, so a turn that is
    resumed from its ids feeds them again, from the first generated one.
    """

    def __init__(
        self,
        stop_ids: Collection[int],
        stop_strings: Sequence[str],
        max_tokens: int,
        text: TextDecoder | None = None,
        min_tokens: int = 0,
    ) -> None:
        self._ids = frozenset(stop_ids)
        self._strings = tuple(s for s in stop_strings if s)
        self._left = max_tokens
        self._text = text
        self._barred = min_tokens
        self._tail = ""
        self._tail_at = 0  # UTF-8 offset of the tail in the generated text
        self._keep = max((len(s) for s in self._strings), default=1) - 1

    @property
    def tokens_left(self) -> int:
        """Tokens that may still be committed."""
        return self._left

    def push(self, token: int) -> Stop | None:
        """Take one generated token; the stop that it causes, if it does."""
        self._left -= 1
        may_end = self._barred <= 0
        self._barred -= 1
        if token in self._ids and may_end:
            return Stop(FinishReason.STOP_TOKEN)
        if self._strings and self._text and (stop := self._scan(self._text.push([token]), may_end)):
            return stop
        if self._left <= 0:
            return Stop(FinishReason.LENGTH)
        return None

    def _scan(self, new: str, may_end: bool) -> Stop | None:
        """Look for stop strings that end within `new`; those that ended before it were seen, or barred."""
        text = self._tail + new
        starts = [text.find(s, max(0, len(self._tail) - len(s) + 1)) for s in self._strings] if may_end else []
        if found := [at for at in starts if at >= 0]:
            return Stop(FinishReason.STOP_STRING, self._tail_at + len(text[: min(found)].encode()))
        cut = max(0, len(text) - self._keep)
        self._tail_at += len(text[:cut].encode())
        self._tail = text[cut:]
        return None
