"""Which turns hold KV pages: seats are given, pages reserved before a turn is scheduled, and taken back (sans-IO).

A waiting turn holds nothing. When memory is short a turn's draft is cut first, then it steps plain, then it waits. A
turn that is due and cannot get a page takes those of the turn that is due last. One that has waited for a quantum may
take the seat of turns that have had theirs for as long: so with memory for some of the sessions all get their share.
What an evicted turn had goes to the prefix cache, and is computed again only as far as others needed the pages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from acespec.cloud.kv_pages import KvPages
from acespec.cloud.runner import PAGE, pages_for
from acespec.cloud.turn import Turn

QUANTUM_S = 5.0
"""How long a turn keeps its seat while others wait."""


class Residency:
    """Seats of turns in the KV memory. Prefixes are shared within a principal, or among all if `shared` says so."""

    def __init__(self, pages: KvPages, quantum_s: float = QUANTUM_S, *, shared: bool = False) -> None:
        self.pages = pages
        self._quantum_s = quantum_s
        self._shared = shared
        self.evictions = 0

    def seat_waiting(self, now: float, turns: Collection[Turn]) -> None:
        """Give seats to waiting turns in their order, as far as memory goes."""
        for turn in _in_order([t for t in turns if t.waiting and t.may_step]):
            if not self._seat(turn, now) and not (self._rotate(turn, now, turns) and self._seat(turn, now)):
                return  # Nobody overtakes: a long sequence would wait for ever behind short ones.

    def depth(self, turn: Turn, wanted: int) -> int | None:
        """Draft tokens of one path, at most `wanted`, for which the turn has pages now; None if not even for none."""
        if turn.hold is None:
            return None
        room = len(turn.hold.table) * PAGE - len(turn.tokens)
        if wanted <= room or self.pages.reserve(turn.hold, len(turn.tokens) + wanted):
            return wanted
        return min(room, wanted) if room >= 0 else None

    def make_room(self, turn: Turn, now: float, turns: Iterable[Turn], scheduled: Collection[Turn]) -> bool:
        """Evict the turn that is due last, if that is later than `turn` is."""
        rivals = [t for t in turns if not t.waiting and t is not turn and t not in scheduled]
        victim = max(rivals, key=_eviction_order, default=None)
        if victim is None or _eviction_order(victim) <= _eviction_order(turn):
            return False
        self.evict(victim, now)
        return True

    def evict(self, turn: Turn, now: float) -> None:
        """Take a turn's pages."""
        self.evictions += 1
        turn.queued_at = now
        tokens = turn.tokens[: turn.cached]
        self.pages.release(turn.unseat(), tokens)

    def settle(self, turn: Turn) -> None:
        """A step has ended: what a rejection left over goes back."""
        if turn.hold is not None and len(turn.tokens) <= (len(turn.hold.table) - 1) * PAGE:
            self.pages.trim(turn.hold, len(turn.tokens))

    def publish(self, turn: Turn) -> None:
        """Let other turns use the whole pages that this one has filled."""
        if turn.hold is not None:
            self.pages.publish(turn.hold, turn.tokens[: turn.cached])

    def leave(self, turn: Turn) -> None:
        """A turn is over."""
        if turn.hold is not None:
            tokens = turn.tokens[: turn.cached]
            self.pages.release(turn.unseat(), tokens)

    def _seat(self, turn: Turn, now: float) -> bool:
        hold = self.pages.hold("" if self._shared else turn.principal, turn.tokens)
        if not self.pages.reserve(hold, len(turn.tokens) + 1):
            self.pages.release(hold, turn.tokens[: hold.cached])
            return False
        turn.seat(hold, now)
        return True

    def _rotate(self, turn: Turn, now: float, turns: Iterable[Turn]) -> bool:
        """Take the seats of turns that had theirs for long, if that makes enough room."""
        detached = [t for t in turns if not t.waiting and not t.may_step]
        served = [
            t
            for t in turns
            if not t.waiting and t.may_step and min(now - t.seated_at, now - turn.queued_at) >= self._quantum_s
        ]
        victims = [*detached, *sorted(served, key=_eviction_order, reverse=True)]
        needed = pages_for(len(turn.tokens) + 1) - self.pages.available
        chosen: list[Turn] = []
        for victim in victims:
            if needed <= 0:
                break
            chosen.append(victim)
            needed -= len(victim.hold.table) if victim.hold else 0
        if needed > 0:
            return False
        for victim in chosen:
            self.evict(victim, now)
        return True


def _eviction_order(turn: Turn) -> tuple[bool, float, float]:
    """Greatest goes first: those that cannot step, then the one that is due last, then the youngest."""
    return (not turn.may_step, turn.clock.due, turn.opened)


def _in_order(waiting: list[Turn]) -> list[Turn]:
    """First come first served, each principal's first before anyone's second."""
    nth: dict[str, int] = {}
    ranked: list[tuple[int, float, int, Turn]] = []
    for number, turn in enumerate(sorted(waiting, key=lambda t: t.queued_at)):
        rank = nth[turn.principal] = nth.get(turn.principal, -1) + 1
        ranked.append((rank, turn.queued_at, number, turn))
    return [turn for *_, turn in sorted(ranked, key=lambda item: item[:3])]
