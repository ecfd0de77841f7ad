"""Virtual time: actions in the order of their times, ties in the order in which they were asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Agenda:
    """`now` is in seconds; it moves only from one action to the next.

    Attributes:
        now: the time.
        done: actions carried out so far.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.done = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Carry out `action` at `time`, or next if that has passed."""
        self._count += 1
        heapq.heappush(self._heap, (max(time, self.now), self._count, action))

    def step(self, until: float) -> bool:
        """Carry out the next action that is not later than `until`; False if there is none."""
        if not self._heap or self._heap[0][0] > until:
            return False
        self.now, _, action = heapq.heappop(self._heap)
        self.done += 1
        action()
        return True

    def run(self, until: float) -> None:
        """Carry out everything up to `until`, which then is the time."""
        while self.step(until):
            pass
        self.now = max(self.now, until)
