"""Virtual time: actions in the order of their times, ties in the order in which they were asked for.

Time is whole nanoseconds inside, so that no order depends on how a sum of floats was rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from acespec.sim.units import SECOND

Action = Callable[[], None]


class Agenda:
    """Time moves only from one action to the next.

    Attributes:
        now_ns: the time in nanoseconds.
        now: the same in seconds, exactly `now_ns` / 1e9.
        done: actions carried out so far.
    """

    __slots__ = ("_count", "_heap", "_stopped", "done", "now", "now_ns")

    def __init__(self) -> None:
        self.now_ns = 0
        self.now = 0.0
        self.done = 0
        self._heap: list[tuple[int, int, Action]] = []
        self._count = 0
        self._stopped = False

    def at(self, time: float, action: Action) -> None:
        """Carry out `action` at `time` in seconds, or next if that has passed: `now` is then not below `time`."""
        self.at_ns(ns_not_before(time), action)

    def at_ns(self, time: int, action: Action) -> None:
        """Carry out `action` at `time` in nanoseconds, or next if that has passed."""
        self._count += 1
        now = self.now_ns
        heappush(self._heap, (time if time > now else now, self._count, action))

    def soon(self, action: Action) -> None:
        """Carry out `action` once everything that was asked for at this time is done."""
        self._count += 1
        heappush(self._heap, (self.now_ns, self._count, action))

    def step(self, until: float) -> bool:
        """Carry out the next action that is not later than `until` in seconds; False if there is none."""
        if not self._heap or self._heap[0][0] / SECOND > until:
            return False
        self._next()
        return True

    def run(self, until: float) -> bool:
        """Carry out everything up to `until` in seconds, which then is the time; False if an action said `stop`."""
        end = ns_not_before(until)
        heap = self._heap
        self._stopped = False
        while heap and heap[0][0] <= end:
            self._next()
            if self._stopped:
                return False
        if end > self.now_ns:
            self.now_ns = end
            self.now = end / SECOND
        return True

    def stop(self) -> None:
        """End `run` after the action that calls this."""
        self._stopped = True

    def _next(self) -> None:
        time, _, action = heappop(self._heap)
        if time != self.now_ns:
            self.now_ns = time
            self.now = time / SECOND
        self.done += 1
        action()


def ns_not_before(seconds: float) -> int:
    """The nanosecond nearest to `seconds` that is, read back as seconds, not before them."""
    time = round(seconds * SECOND)
    return time if time / SECOND >= seconds else time + 1
