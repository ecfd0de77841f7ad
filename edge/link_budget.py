"""What all sessions of one connection have in flight upwards, judged together (sans-IO).

They share one narrow link, so they share one pacer: what one of them learns of rate and round trip holds for all, and a
message may leave while the link's queue is believed empty, whoever filled it. Frames leave in the order in which they
are written, so an acknowledgement of one covers those that any session wrote before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from acespec.proto.pacer import Pacer

DRAFTS_GAIN = 1.25
"""Bandwidth-delay products of drafts in flight. Commits, which acknowledge them, come often; and what queues up here
delays our own acknowledgements, and with them the commits."""


class LinkBudget:
    """Of one connection.

    Attributes:
        pacer: what is known of the uplink, and what is in flight on it.
    """

    def __init__(self) -> None:
        self.pacer = Pacer(DRAFTS_GAIN)
        self._marks = 0
        self._acknowledged = 0
        self._refused: dict[Uplink, None] = {}

    def ready(self, asker: Uplink) -> bool:
        """True if the next message may leave now. If not, the asker hears of it when there is room again."""
        if not self.pacer.ready():
            self._refused.setdefault(asker, None)  # Who asks again keeps his place.
            return False
        self._refused.pop(asker, None)
        return True

    def sent(self, now: float, nbytes: int) -> int:
        """A message of `nbytes` IP bytes went out; its mark."""
        self._marks += 1
        self.pacer.sent(now, self._marks, nbytes)
        return self._marks

    def acknowledged(self, now: float, mark: int, held_s: float) -> float | None:
        """The verifier has the message of `mark`, and held it for `held_s`; the round trip, unless a later message was
        acknowledged before."""
        if mark <= self._acknowledged:
            return None
        self._acknowledged = mark
        self.pacer.acknowledged(now, mark, held_s)
        self._tell_of_room()
        return self.pacer.last_rtt

    def forget(self, marks: Iterable[int]) -> None:
        """Messages of a stream that is no more."""
        self.pacer.forget(frozenset(marks))
        self._tell_of_room()

    def leave(self, uplink: Uplink) -> None:
        """A session has nothing to send any more."""
        self._refused.pop(uplink, None)

    def _tell_of_room(self) -> None:
        """In the order in which they were refused, so that nobody is passed over."""
        if self._refused and self.pacer.ready():
            refused, self._refused = self._refused, {}
            for uplink in refused:
                uplink.on_room()


class Uplink:
    """One session's share: its draft frames of this epoch, and which of them the verifier has acknowledged."""

    def __init__(self, budget: LinkBudget, on_room: Callable[[], None]) -> None:
        self.on_room = on_room
        self._budget = budget
        self._flight: deque[tuple[int, int, float]] = deque()  # (frame, mark, sent at)
        self._frames = self._acknowledged = 0

    @property
    def pacer(self) -> Pacer:
        """The link's."""
        return self._budget.pacer

    @property
    def unanswered_since(self) -> float | None:
        """When the oldest frame left that is not acknowledged; None if all are."""
        return self._flight[0][2] if self._flight else None

    def restart(self) -> None:
        """A new epoch, or the end of a turn: nothing of the old one will be acknowledged."""
        marks = [mark for _, mark, _ in self._flight]
        self._flight.clear()
        self._frames = self._acknowledged = 0
        self._budget.leave(self)
        self._budget.forget(marks)

    def ready(self) -> bool:
        """True if the link takes a message now."""
        return self._budget.ready(self)

    def sent(self, now: float, nbytes: int) -> None:
        """A draft frame of `nbytes` IP bytes went out."""
        self._frames += 1
        self._flight.append((self._frames, self._budget.sent(now, nbytes), now))

    def acknowledged(self, now: float, frames: int, held_s: float) -> float | None:
        """The verifier has the first `frames` frames; the round trip if that is news."""
        frames = min(frames, self._frames)
        if frames <= self._acknowledged:
            return None
        self._acknowledged = frames
        mark = 0
        while self._flight and self._flight[0][0] <= frames:
            mark = self._flight.popleft()[1]
        return self._budget.acknowledged(now, mark, held_s)
