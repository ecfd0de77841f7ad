"""How far to draft and what to ship: decisions with their value and reason, made from what the session observed.

The controllers: `FixedController` here, `rate_controller.py` (the default), `confidence_controller.py` and
`ucb_controller.py`. None of them can change the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from acespec.edge.brain.prices import FREE, Prices
from acespec.edge.brain.survival import Guess, Outcome, SurvivalEstimates
from acespec.proto.errors import UsageError

AUTO_CAP = 16
"""Longest draft of a controller that is not told otherwise; the useful length grows only with the logarithm of the
round trip."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to do it, what it is worth beyond its price (in tokens), and why: `words` with `figures` in it."""

    go: bool
    value: float
    words: str
    figures: tuple[float, ...] = ()

    @property
    def reason(self) -> str:
        """The words, written only when somebody wants to read them: decisions are many."""
        return self.words.format(*self.figures)


class Controller(Protocol):
    """Decides the draft. Depths count unverified tokens; survival is the chance that a whole path is right."""

    @property
    def cap(self) -> int:
        """Most unverified tokens of a path that it ever wants."""

    def extend(self, depth: int, survival: float, prices: Prices = FREE) -> Decision:
        """Should a token be drafted behind a path of `depth` unverified ones?"""

    def keep(self, depth: int, survival: float) -> Decision:
        """Is a drafted token at `depth` worth its memory, with `survival` counting it?"""

    def ship(self, depth: int, survival: float, nbytes: float, prices: Prices = FREE) -> Decision:
        """Is a kept token at `depth` worth its bytes on the link and its row at the verifier?"""

    def send(self, gain: float, nbytes: float, prices: Prices = FREE) -> Decision:
        """Are tokens of such a gain in all worth a message of their own, of `nbytes` with all headers?"""

    def confidence(self, guess: Guess) -> float:
        """The chance behind a drafter's claim."""

    def drafted(self, seconds: float, proposals: int) -> None:
        """`proposals` forward passes of the drafter took this long."""

    def committed(self, now: float, tokens: int, outcomes: Sequence[Outcome]) -> None:
        """Tokens became final; what the guesses at their positions were worth."""


class FixedController:
    """Always `length` tokens ahead, whatever they are worth."""

    def __init__(self, length: int) -> None:
        if length < 0:
            raise UsageError(f"a draft length of {length} is impossible: use 0 or more, or auto")
        self._length = length
        self._survival = SurvivalEstimates()

    @property
    def cap(self) -> int:
        """See `Controller.cap`."""
        return self._length

    def extend(self, depth: int, survival: float, prices: Prices = FREE) -> Decision:
        """See `Controller.extend`."""
        if depth < self._length:
            return Decision(True, survival, "{} of {} drafted", (depth, self._length))
        return Decision(False, 0.0, "all {} drafted", (self._length,))

    def keep(self, depth: int, survival: float) -> Decision:
        """See `Controller.keep`."""
        return Decision(depth <= self._length, survival, "fixed length")

    def ship(self, depth: int, survival: float, nbytes: float, prices: Prices = FREE) -> Decision:
        """See `Controller.ship`."""
        return Decision(True, survival, "fixed length")

    def send(self, gain: float, nbytes: float, prices: Prices = FREE) -> Decision:
        """See `Controller.send`."""
        return Decision(True, gain, "fixed length")

    def confidence(self, guess: Guess) -> float:
        """See `Controller.confidence`: it orders a tree's frontier."""
        return self._survival.estimate(guess)

    def drafted(self, seconds: float, proposals: int) -> None:
        """See `Controller.drafted`."""

    def committed(self, now: float, tokens: int, outcomes: Sequence[Outcome]) -> None:
        """See `Controller.committed`."""
        for outcome in outcomes:
            self._survival.observe(outcome)
