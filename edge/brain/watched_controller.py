"""A controller that tells a watcher what it decides, and decides as the one that it wraps."""

from __future__ import annotations

from collections.abc import Sequence

from acespec.edge.brain.controller import Controller, Decision
from acespec.edge.brain.prices import FREE, Prices
from acespec.edge.brain.survival import Guess, Outcome
from acespec.edge.watch import DecisionMade, SessionWatcher


class WatchedController:
    """`inner` under watch. It is asked at every poll, so only what is new is told: between two commits a decision on
    the same path is told again only when it turns."""

    def __init__(self, inner: Controller, watcher: SessionWatcher) -> None:
        self.inner = inner
        self._watcher = watcher
        self._told: dict[tuple[str, int, float], bool] = {}

    @property
    def cap(self) -> int:
        """See `Controller.cap`."""
        return self.inner.cap

    def extend(self, depth: int, survival: float, prices: Prices = FREE) -> Decision:
        """See `Controller.extend`."""
        return self._tell("extend", self.inner.extend(depth, survival, prices), depth, survival)

    def keep(self, depth: int, survival: float) -> Decision:
        """See `Controller.keep`."""
        return self._tell("keep", self.inner.keep(depth, survival), depth, survival)

    def ship(self, depth: int, survival: float, nbytes: float, prices: Prices = FREE) -> Decision:
        """See `Controller.ship`."""
        return self._tell("ship", self.inner.ship(depth, survival, nbytes, prices), depth, survival, nbytes)

    def send(self, gain: float, nbytes: float, prices: Prices = FREE) -> Decision:
        """See `Controller.send`."""
        return self._tell("send", self.inner.send(gain, nbytes, prices), 0, gain, nbytes)

    def confidence(self, guess: Guess) -> float:
        """See `Controller.confidence`."""
        return self.inner.confidence(guess)

    def drafted(self, seconds: float, proposals: int) -> None:
        """See `Controller.drafted`."""
        self.inner.drafted(seconds, proposals)

    def committed(self, now: float, tokens: int, outcomes: Sequence[Outcome]) -> None:
        """See `Controller.committed`."""
        self._told.clear()
        self.inner.committed(now, tokens, outcomes)

    def _tell(self, question: str, decision: Decision, depth: int, chance: float, nbytes: float = 0.0) -> Decision:
        subject = question, depth, round(chance, 6)
        if self._told.get(subject) is not decision.go:
            self._told[subject] = decision.go
            made = DecisionMade(question, decision.go, decision.value, decision.reason, depth, chance, nbytes)
            self._watcher.saw(made)
        return decision
