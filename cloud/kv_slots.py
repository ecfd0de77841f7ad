"""Which session's tokens each KV slot holds, so that a session's next turn computes only what is new."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from acespec.cloud.backend import SessionKey
from acespec.cloud.runner import Runner
from acespec.proto.errors import Exhausted


@dataclass(slots=True)
class _Held:
    slot: int
    tokens: list[int] = field(default_factory=list)
    busy: bool = False


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    length = min(len(a), len(b))
    return next((i for i in range(length) if a[i] != b[i]), length)


class KvSlots:
    """Slots by session, least recently used first. Room is made by evicting idle sessions, whose KV is recomputed
    when they come back."""

    def __init__(self, runner: Runner, max_slots: int) -> None:
        self._runner = runner
        self._max = max_slots
        self._held: OrderedDict[SessionKey, _Held] = OrderedDict()
        self._garbage: list[int] = []

    def __len__(self) -> int:
        return len(self._held)

    def take(self, key: SessionKey, tokens: Sequence[int]) -> tuple[int, int]:
        """The session's slot, and how many leading `tokens` it holds.

        Raises:
            Exhausted: every slot serves a running turn.
        """
        held = self._held.get(key)
        if held is None:
            self._make_room()
            # A forgotten slot serves as well as a new one: the next block starts at 0 and drops what it holds.
            slot = self._garbage.pop() if self._garbage else self._runner.allocate()
            held = self._held[key] = _Held(slot)
        self._held.move_to_end(key)
        held.busy = True
        return held.slot, common_prefix(held.tokens, tokens)

    def put_back(self, key: SessionKey, tokens: Sequence[int]) -> None:
        """The session's turn is over; its slot holds KV for `tokens`."""
        if held := self._held.get(key):
            held.tokens = list(tokens)
            held.busy = False

    def forget(self, key: SessionKey) -> None:
        """The session is gone; its slot is freed at the next `sweep`."""
        if held := self._held.pop(key, None):
            self._garbage.append(held.slot)

    def sweep(self) -> None:
        """Free what was forgotten. Only between steps: a step in flight may still write to a forgotten slot."""
        while self._garbage:
            self._runner.release(self._garbage.pop())

    def _make_room(self) -> None:
        if len(self._held) < self._max:
            return
        idle = next((key for key, held in self._held.items() if not held.busy), None)
        if idle is None:
            raise Exhausted(f"all {self._max} session slots are busy; try again in a moment", retry_after_s=2.0)
        self.forget(idle)
