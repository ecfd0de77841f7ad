"""Withholds text that may be the beginning of a stop string.

The cloud decides where the answer ends; until it has, the edge must not show what may turn out to lie behind the end.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopText:
    """Text in, showable text out. With no stop strings nothing is withheld."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self._barred = 0  # leading characters of what is held that no stop string may end within
        self._shown_bytes = 0

    def push(self, text: str, *, may_end: bool = True) -> str:
        """What of the text so far can be shown for certain and was not yet.

        `may_end` is False for text of the first `min_tokens` tokens: a stop string that is complete there ends nothing.
        """
        pending = self._held + text
        if not may_end:
            self._barred = len(pending)
        safe = len(pending) - self._doubtful(pending)
        self._held = pending[safe:]
        self._barred = max(0, self._barred - safe)
        return self._count(pending[:safe])

    def peek(self, text: str, barred: int | None = None) -> str:
        """What is held back, and `text` behind it, up to the first stop string; takes nothing in.

        `barred`: no stop string ends within so many first characters of `text`, nor before them.
        """
        pending = self._held + text
        barred = self._barred if barred is None else len(self._held) + barred
        return pending[: self._first_stop(pending, barred)]

    def finish(self, rest: str, text_end: int | None) -> str:
        """The last piece. `rest` ends the text; `text_end` is the UTF-8 length that belongs to the answer, if cut."""
        pending = (self._held + rest).encode()
        self._held = ""
        if text_end is not None:
            pending = pending[: max(0, text_end - self._shown_bytes)]
        return self._count(pending.decode(errors="ignore"))

    def _count(self, text: str) -> str:
        self._shown_bytes += len(text.encode())
        return text

    def _doubtful(self, text: str) -> int:
        """Characters at the end from the first place on where a stop string is complete or may be growing."""
        longest = max(map(len, self._stops), default=0)
        first = self._first_stop(text, self._barred)
        for start in range(max(0, len(text) - longest + 1), first):
            if any(len(stop) > len(text) - start and stop.startswith(text[start:]) for stop in self._stops):
                return len(text) - start
        return len(text) - first

    def _first_stop(self, text: str, barred: int) -> int:
        """Where the first complete stop string begins that does not end within `barred` characters; else the end."""
        starts = (text.find(stop, max(0, barred - len(stop) + 1)) for stop in self._stops)
        return min((at for at in starts if at >= 0), default=len(text))
