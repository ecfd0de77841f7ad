"""What a drafter is: it guesses the target's next token after a path, and learns from what was committed.

A path is the committed ids followed by the draft so far. A drafter is asked about arbitrary paths in any order
and finds by itself how much of its state still holds. It can only change how fast tokens are committed, never
which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from acespec.proto.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Candidate:
    """One guess for the next token.

    Attributes:
        token: an id of the target's vocabulary.
        probability: estimated chance in [0, 1] that the target takes it, once the path before it is committed.
        source: what proposed it: `own` (earlier in this text), `table` (learned counts), `lm` (a model).
    """

    token: int
    probability: float
    source: str


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What is fixed for one turn.

    Attributes:
        params: how the target samples; drafters mirror it.
        seed: the key of the noise that both ends share.
        prompt_len: number of ids before the generated part.
        vocab_size: ids the target can sample, 0 .. vocab_size - 1.
        banned: ids that end the text, which the target does not draw for the first `min_tokens` generated tokens.
    """

    params: SamplingParams
    seed: int
    prompt_len: int
    vocab_size: int
    banned: tuple[int, ...] = ()
    min_tokens: int = 0

    def banned_at(self, position: int) -> tuple[int, ...]:
        """Ids that the target does not draw at this absolute position."""
        return self.banned if position - self.prompt_len < self.min_tokens else ()


class Drafter(Protocol):
    """Proposes tokens. Every method but `should_stop` is called from one and the same worker thread.

    Attributes:
        name: the kind, for logs and reports.
        should_stop: polled inside long work (the prefill of a language model), and set by the owner. Once it
            returns True, `propose` returns [] soon; what was done so far is kept for the next call.
    """

    name: str
    should_stop: Callable[[], bool]

    @property
    def proposal_s(self) -> float | None:
        """Seconds of one proposal, as the first `begin` measured it; None where that is nothing or unknown."""

    def begin(self, turn: TurnContext) -> None:
        """Starts a turn. State built for an earlier turn is reused where the ids agree."""

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        """Up to k distinct candidates for the token at position len(path), best first.

        [] means that nothing is worth saying, or that `should_stop` cut the work short.
        """

    def commit(self, tokens: Sequence[int], start: int) -> None:
        """Takes note of newly committed tokens at positions start, start + 1, ...

        Called for every commit, drafted or not, in order. Committed ids at earlier positions that were never
        passed here (the prompt, a resumed part) are read from the next path.
        """

    def close(self) -> None:
        """Saves what was learned and frees what is held. Idempotent."""


def never() -> bool:
    """The default of `should_stop`."""
    return False


class QuietDrafter:
    """A drafter that says nothing and learns nothing: `none` as it is, and the base of the others."""

    name = "none"

    def __init__(self) -> None:
        self.should_stop: Callable[[], bool] = never

    @property
    def proposal_s(self) -> float | None:
        """See `Drafter.proposal_s`."""
        return None

    def begin(self, turn: TurnContext) -> None:
        """See `Drafter.begin`."""

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        """See `Drafter.propose`."""
        return []

    def commit(self, tokens: Sequence[int], start: int) -> None:
        """See `Drafter.commit`."""

    def close(self) -> None:
        """See `Drafter.close`."""
