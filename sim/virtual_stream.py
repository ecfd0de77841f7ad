"""One bidirectional stream in virtual time: two FIFO pipes that can be held, emptied and broken at either end.

`BytePipe` is what an end needs of a pipe; `narrow_stream.py` has pipes that know what bytes cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from acespec.sim.agenda import Agenda


class BytePipe(Protocol):
    """One direction of a stream, as its ends see it."""

    on_frame: Callable[[bytes], None]
    on_room: Callable[[], None]

    @property
    def room(self) -> bool:
        """True if another frame may be sent."""

    def send(self, data: bytes) -> None:
        """Put a frame in; on a closed pipe it is lost."""

    def finish(self, action: Callable[[], None]) -> None:
        """The writer ends the pipe: `action` is carried out once everything before it was read."""

    def close(self) -> None:
        """Lose everything that is under way, and deliver nothing more."""


class Pipe:
    """One direction. Frames arrive in order, `delay` seconds after they were sent, unless the pipe is held or closed.

    `window` frames at most are under way or unread: a writer must look at `room` first, and hears by `on_room`.
    """

    def __init__(self, agenda: Agenda, delay: float, window: int) -> None:
        self.on_frame: Callable[[bytes], None] = _nobody
        self.on_room: Callable[[], None] = _nothing
        self.open = True
        self._agenda = agenda
        self._delay = delay
        self._window = window
        self._held_until = 0.0
        self._frames: deque[tuple[float, bytes | Callable[[], None]]] = deque()
        self._waiting = False

    @property
    def room(self) -> bool:
        """True if another frame may be sent."""
        return self.open and len(self._frames) < self._window

    def send(self, data: bytes) -> None:
        """Put a frame in; on a closed pipe it is lost."""
        if self.open:
            self._frames.append((self._agenda.now + self._delay, data))
            self._wait()

    def finish(self, action: Callable[[], None]) -> None:
        """The writer ends the pipe: `action` is carried out once everything before it was read."""
        if self.open:
            self._frames.append((self._agenda.now + self._delay, action))
            self._wait()

    def hold(self, until: float) -> None:
        """Deliver nothing before `until`."""
        self._held_until = max(self._held_until, until)

    def close(self) -> None:
        """Lose everything that is under way, and deliver nothing more."""
        self.open = False
        self._frames.clear()

    def _wait(self) -> None:
        if self._frames and not self._waiting:
            self._waiting = True
            self._agenda.at(max(self._frames[0][0], self._held_until), self._arrive)

    def _arrive(self) -> None:
        self._waiting = False
        if self._frames and self._agenda.now >= max(self._frames[0][0], self._held_until):
            was_full = not self.room
            _, data = self._frames.popleft()
            if isinstance(data, bytes):
                self.on_frame(data)
            else:
                data()
            if was_full and self.room:
                self.on_room()
        self._wait()


class VirtualStream:
    """Two pipes; `up` runs from the edge to the cloud."""

    def __init__(self, agenda: Agenda, up_delay: float, down_delay: float, window: int) -> None:
        self.up = Pipe(agenda, up_delay, window)
        self.down = Pipe(agenda, down_delay, window)

    def hold(self, until: float) -> None:
        """Deliver nothing either way before `until`."""
        self.up.hold(until)
        self.down.hold(until)


def _nobody(data: bytes) -> None:
    """A frame that nobody reads."""


def _nothing() -> None:
    """Nobody waits for room."""
