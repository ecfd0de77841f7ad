"""Real-time priority for one thread, where that is allowed: a busy machine then delays packets less."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LOWEST = 1


@contextmanager
def before_others() -> Iterator[None]:
    """While the block runs, this thread runs before all ordinary ones; programs that it starts do not inherit that."""
    if not hasattr(os, "sched_setscheduler"):
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(LOWEST))
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, policy, parameters)
