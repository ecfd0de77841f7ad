"""Real time on an event loop: absolute deadlines on the monotonic clock, never early."""

from __future__ import annotations

import asyncio
import time

from acespec.sim.units import SECOND


class Clock:
    """Nanoseconds since it was made."""

    __slots__ = ("_origin",)

    def __init__(self) -> None:
        self._origin = time.monotonic_ns()

    def now(self) -> int:
        """Nanoseconds since the clock was made."""
        return time.monotonic_ns() - self._origin

    async def sleep_until(self, t: int) -> None:
        """Returns at `t` or later. Loops may fire a tick early, hence the second look."""
        while (left := t - self.now()) > 0:  # noqa: ASYNC110 - time has no event to wait for
            await asyncio.sleep(left / SECOND)

    async def wait(self, event: asyncio.Event, until: int | None) -> None:
        """Returns once `event` is set or, if `until` is given, about then; leaves the event clear."""
        timer = None
        if until is not None:
            delay = max(0, until - self.now()) / SECOND
            timer = asyncio.get_running_loop().call_later(delay, event.set)
        try:
            await event.wait()
        finally:
            if timer is not None:
                timer.cancel()
        event.clear()
