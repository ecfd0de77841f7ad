"""Bursts of committed text become an even flow.

A commit may bring one token or a dozen at once. Each burst is given a time by which it must have been shown: a little
more than bursts are apart of late, but never more than `LAG_S`. Text is then shown at the lowest constant rate that
keeps all those times, which is the output rate itself where bursts come evenly. What comes token by token is hardly
delayed at all.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from acespec.edge.chat.cells import cluster_end

LAG_S = 0.3
"""Longest time from commit to screen."""
ROOM = 1.25
"""Burst distances that a burst is spread over: the next one may be this much late without a gap."""
WEIGHT = 0.3
"""Of the newest distance in the running mean."""
SAME_BURST_S = 0.01
"""What comes closer than this belongs to one burst."""


@dataclass(slots=True)
class _Burst:
    length: int
    due: float


class Flow:
    """Text in as it is committed, text out as it is to be shown; `now` in seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._text = ""
        self._bursts: deque[_Burst] = deque()
        self._shown_until = 0.0
        self._owed = 0.0
        self._pushed_at: float | None = None
        self._distance = 0.0

    @property
    def waiting(self) -> str:
        """Committed, but not shown yet."""
        return self._text

    def push(self, now: float, text: str) -> None:
        """`text` was committed."""
        if not text:
            return
        self._measure(now)
        if not self._text:
            self._shown_until, self._owed = now, 0.0
        self._text += text
        self._bursts.append(_Burst(len(text), now + min(LAG_S, ROOM * self._distance)))

    def due(self, now: float) -> str:
        """What is to be shown by `now` and was not given out before."""
        if not self._text:
            return ""
        self._owed += self._rate() * max(0.0, now - self._shown_until)
        self._shown_until = max(now, self._shown_until)
        return self._take(max(int(self._owed), self._overdue(now)))

    def rest(self) -> str:
        """All that waits."""
        return self._take(len(self._text))

    def _measure(self, now: float) -> None:
        if self._pushed_at is not None and now - self._pushed_at >= SAME_BURST_S:
            distance = min(LAG_S, now - self._pushed_at)
            known = self._distance or distance
            self._distance = known + WEIGHT * (distance - known)
        self._pushed_at = now

    def _rate(self) -> float:
        """Characters per second that show every burst in time, from the last showing on."""
        rate, length = 0.0, 0
        for burst in self._bursts:
            length += burst.length
            left = burst.due - self._shown_until
            if left > 0:
                rate = max(rate, length / left)
        return rate

    def _overdue(self, now: float) -> int:
        count = length = 0
        for burst in self._bursts:
            length += burst.length
            if burst.due <= now:
                count = length
        return count

    def _take(self, count: int) -> str:
        count = cluster_end(self._text, min(count, len(self._text)))
        taken, self._text = self._text[:count], self._text[count:]
        self._owed = max(0.0, self._owed - count)
        while count and self._bursts:
            first = self._bursts[0]
            gone = min(count, first.length)
            first.length -= gone
            count -= gone
            if not first.length:
                self._bursts.popleft()
        return taken
