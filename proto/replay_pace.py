"""Takes prescribed times: the part of a replayed model that would be its arithmetic.

Deadlines are absolute: what the caller needs between two pieces of work that follow each other at once is part of the
second one's time, so a queue of n pieces takes n times the prescribed time and errors do not add up.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SPIN_S = 0.0004
"""The end of a wait is polled: a sleeping thread wakes up late by a fraction of a millisecond."""
JOIN_S = 0.003
"""Work asked for within this long of the last piece's end counts from there: what lies between is our own overhead,
which engines that prepare a step during the last one do not have."""
NEVER_IDLE_S = 1.0
"""The same for a worker that is known not to wait for anything: what is longer is this machine being busy."""

NAP_S = 0.005
"""Longest sleep between two looks at `interrupted`."""


class Pace:
    """One worker's clock. `work` may be called from any one thread at a time. `join_s`: see JOIN_S.

    Attributes:
        pieces: pieces of work done.
        late_s: by how much they ended after their deadlines, in all.
    """

    def __init__(self, join_s: float = JOIN_S) -> None:
        self._join_s = join_s
        self.pieces = 0
        self.late_s = 0.0
        self._free_at = -1.0

    def rest(self) -> None:
        """The worker was idle: what comes next begins when it is asked for."""
        self._free_at = -1.0

    def work(self, seconds: float, interrupted: Callable[[], bool] | None = None) -> bool:
        """Return when a piece of work that takes `seconds` would be done, never early.

        `interrupted` is asked now and then; once it says True the work is given up, and False returned.
        """
        now = time.monotonic()
        begin = self._free_at if 0.0 <= now - self._free_at <= self._join_s else now
        deadline = begin + seconds
        if not _wait(deadline, interrupted):
            self._free_at = -1.0
            return False
        self._free_at = deadline
        self.pieces += 1
        self.late_s += max(0.0, time.monotonic() - deadline)
        return True


def _wait(deadline: float, interrupted: Callable[[], bool] | None) -> bool:
    while (left := deadline - time.monotonic()) > 0.0:
        if interrupted is not None and interrupted():
            return False
        if left > SPIN_S:
            time.sleep(left - SPIN_S if interrupted is None else min(left - SPIN_S, NAP_S))
        else:
            time.sleep(0.0)  # let other threads of this process have their turn
    return True
