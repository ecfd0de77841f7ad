"""How far to draft: decisions with their reasons, made from what the session observed.

`FixedController` always drafts N tokens ahead. `AutoController` follows the rate rule: the next token must earn its
time, so draft while survival > rate x t_d, where rate is the output rate and t_d the time of one proposal (Dinkelbach's
form of the optimal stop for tokens per second, [D t_d + C] / E).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from acespec.edge.calibration import DepthCalibration
from acespec.edge.draft_tree import Outcome
from acespec.proto.errors import UsageError

AUTO_CAP = 16
"""Longest draft of `auto`; the useful length grows only with the logarithm of the round trip."""
SHIP_FLOOR = 0.02
"""A guess less likely than this is not worth its 2 bytes and its verify row, however fast it was drafted."""
FADE = 0.8
"""What a new sample leaves of the older ones in the averages of output rate and drafting time."""
PAUSE_S = 1.0
"""A longer gap between commits is a pause (an outage, a person typing), not a slow output."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to do it, and why: `words` with `figures` in it."""

    go: bool
    words: str
    figures: tuple[float, ...] = ()

    @property
    def reason(self) -> str:
        """The words, written only when somebody wants to read them: decisions are many."""
        return self.words.format(*self.figures)


class Controller(Protocol):
    """Decides the draft length. Depths count unverified tokens; survival is the chance that all of them are right."""

    @property
    def cap(self) -> int:
        """Most unverified tokens that it ever wants."""

    def extend(self, depth: int, survival: float) -> Decision:
        """Should a token be drafted behind `depth` unverified ones?"""

    def keep(self, depth: int, survival: float) -> Decision:
        """Is a drafted token at `depth` worth shipping, with `survival` counting it?"""

    def confidence(self, depth: int, probability: float) -> float:
        """The chance behind a drafter's claim."""

    def drafted(self, seconds: float, proposals: int) -> None:
        """Drafting `proposals` tokens took this long."""

    def committed(self, now: float, tokens: int, outcomes: Sequence[Outcome]) -> None:
        """Tokens became final; what the guesses at their positions were worth."""


class FixedController:
    """Always `length` tokens ahead, whatever they are worth."""

    def __init__(self, length: int) -> None:
        if length < 0:
            raise UsageError(f"a draft length of {length} is impossible: use 0 or more, or auto")
        self._length = length

    @property
    def cap(self) -> int:
        """See `Controller.cap`."""
        return self._length

    def extend(self, depth: int, survival: float) -> Decision:
        """See `Controller.extend`."""
        if depth < self._length:
            return Decision(True, "{} of {} drafted", (depth, self._length))
        return Decision(False, "all {} drafted", (self._length,))

    def keep(self, depth: int, survival: float) -> Decision:
        """See `Controller.keep`."""
        return Decision(depth <= self._length, "fixed length")

    def confidence(self, depth: int, probability: float) -> float:
        """See `Controller.confidence`."""
        return probability

    def drafted(self, seconds: float, proposals: int) -> None:
        """See `Controller.drafted`."""

    def committed(self, now: float, tokens: int, outcomes: Sequence[Outcome]) -> None:
        """See `Controller.committed`."""


class AutoController:
    """The rate rule over calibrated survival."""

    def __init__(self, cap: int = AUTO_CAP) -> None:
        self._cap = cap
        self._calibration = DepthCalibration(cap)
        self._output = _Ratio()
        self._drafting = _Ratio()
        self._last_commit: float | None = None

    @property
    def cap(self) -> int:
        """See `Controller.cap`."""
        return self._cap

    @property
    def threshold(self) -> float:
        """Survival at which a token just earns its time: output rate x drafting time."""
        return max(SHIP_FLOOR, self._output.value * self._drafting.value)

    def extend(self, depth: int, survival: float) -> Decision:
        """See `Controller.extend`."""
        if depth >= self._cap:
            return Decision(False, "{} tokens ahead is the cap", (depth,))
        figures = survival, depth, self.threshold
        if depth > 0 and survival <= figures[2]:
            return Decision(False, "survival {:.3f} at depth {} is below {:.3f}", figures)
        return Decision(True, "survival {:.3f} at depth {} is above {:.3f}", figures)

    def keep(self, depth: int, survival: float) -> Decision:
        """See `Controller.keep`."""
        return Decision(survival > SHIP_FLOOR, "survival {:.3f} against {}", (survival, SHIP_FLOOR))

    def confidence(self, depth: int, probability: float) -> float:
        """See `Controller.confidence`."""
        return self._calibration.estimate(depth, probability)

    def drafted(self, seconds: float, proposals: int) -> None:
        """See `Controller.drafted`."""
        self._drafting.add(seconds, proposals)

    def committed(self, now: float, tokens: int, outcomes: Sequence[Outcome]) -> None:
        """See `Controller.committed`."""
        for outcome in outcomes:
            self._calibration.observe(outcome)
        if not outcomes:
            self._calibration.relax(tokens)
        if self._last_commit is not None:
            self._output.add(tokens, min(now - self._last_commit, PAUSE_S))
        self._last_commit = now


def make_controller(num_draft_tokens: int | str) -> Controller:
    """The controller for `--num-draft-tokens`: a number, or `auto`."""
    if num_draft_tokens == "auto":
        return AutoController()
    try:
        return FixedController(int(num_draft_tokens))
    except ValueError:
        raise UsageError(f"--num-draft-tokens {num_draft_tokens}: give a number from 0 on, or auto") from None


class _Ratio:
    """A ratio of two fading sums: a burst weighs what it lasts."""

    def __init__(self) -> None:
        self._above = self._below = 0.0

    @property
    def value(self) -> float:
        """The ratio; 0 before anything is known."""
        return self._above / self._below if self._below > 0 else 0.0

    def add(self, above: float, below: float) -> None:
        """One sample."""
        self._above = self._above * FADE + above
        self._below = self._below * FADE + below
