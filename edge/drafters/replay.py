"""Drafters without a model that know the replayed target: right as often as prescribed, at a prescribed speed.

`replay` is an honest one. `useless` is always wrong and claims 0.9; `hostile` is always wrong, claims more than
certainty and gives as many candidates as it likes. They serve to measure, with the real stack around them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from acespec.edge.drafters.base import Candidate, QuietDrafter, TurnContext
from acespec.edge.drafters.replay_accuracy import Accuracy, side_chance
from acespec.proto.replay_pace import Pace
from acespec.proto.replay_text import FIRST_WORD, ReplayText, end_id, mix

SOURCE = "replay"
CLAIM_OF_USELESS = 0.9
HOSTILE_WIDTH = 8


class Pacing(Protocol):
    """Takes the time of a proposal, as `Pace` does."""

    def work(self, seconds: float, interrupted: Callable[[], bool] | None = None) -> bool:
        """See `Pace.work`."""


class Untimed:
    """Takes no time: whoever asks keeps a time of his own."""

    def work(self, seconds: float, interrupted: Callable[[], bool] | None = None) -> bool:
        """See `Pace.work`."""
        return True


class ReplayDrafter(QuietDrafter):
    """Guesses `text` right where `accuracy` says so; behind a wrong guess, only wrong ones, until a commit corrects it.

    `token_s` is the time of one proposal (t_d), which `pace` takes.
    """

    name = "replay"

    def __init__(self, text: ReplayText, accuracy: Accuracy, token_s: float, pace: Pacing | None = None) -> None:
        super().__init__()
        self._text = text
        self._accuracy = accuracy
        self._token_s = token_s
        self._turn: TurnContext | None = None
        self._committed = 0
        self.pace: Pacing = Pace() if pace is None else pace

    def begin(self, turn: TurnContext) -> None:
        """See `Drafter.begin`."""
        self._turn = turn
        self._committed = turn.prompt_len

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        """See `Drafter.propose`."""
        if not self.pace.work(self._time_of(path), self.should_stop):
            return []
        return self._guesses(path, k)

    def commit(self, tokens: Sequence[int], start: int) -> None:
        """See `Drafter.commit`."""
        self._committed = max(self._committed, start + len(tokens))

    def _time_of(self, path: Sequence[int]) -> float:
        return self._token_s

    def _guesses(self, path: Sequence[int], k: int) -> list[Candidate]:
        turn, position = self._known_turn(), len(path)
        depth = max(1, position - self._committed + 1)
        seen = (turn.seed, position, turn.prompt_len)
        rank = self._accuracy.rank(*seen, depth, k) if self._is_true(path) else k
        tokens = [self._wrong(position, other) for other in range(k)]
        if rank < k:
            tokens[rank] = self._text.token(*seen)
        claims = honest_claims(self._accuracy.claim(*seen, depth), k)
        return [Candidate(token, claim, SOURCE) for token, claim in zip(tokens, claims, strict=True)]

    def _is_true(self, path: Sequence[int]) -> bool:
        turn = self._known_turn()
        return all(
            path[p] == self._text.token(turn.seed, p, turn.prompt_len) for p in range(self._committed, len(path))
        )

    def _wrong(self, position: int, rank: int = 0) -> int:
        """An id that is surely not the target's, and differs from position to position and from rank to rank."""
        turn = self._known_turn()
        words = end_id(turn.vocab_size) - FIRST_WORD
        truth = self._text.token(turn.seed, position, turn.prompt_len)
        # Ids from `first` on in a circle without the truth.
        first = mix(turn.seed, ~position) % (words - 1)
        step = (first + rank) % (words - 1) + 1
        return FIRST_WORD + (truth - FIRST_WORD + step) % words

    def _known_turn(self) -> TurnContext:
        if self._turn is None:
            raise RuntimeError("a drafter is asked before its turn has begun")
        return self._turn


def honest_claims(first: float, k: int) -> list[float]:
    """What k guesses claim whose first is right with this chance, and the others as `side_chance` says."""
    claims, rest = [first], 1.0 - first
    for rank in range(1, k):
        claims.append(rest * side_chance(rank))
        rest -= claims[-1]
    return claims


class UselessDrafter(ReplayDrafter):
    """Never right, and sure of itself."""

    name = "useless"

    def _guesses(self, path: Sequence[int], k: int) -> list[Candidate]:
        claims = [CLAIM_OF_USELESS * (1 - CLAIM_OF_USELESS) ** rank for rank in range(k)]
        return [Candidate(self._wrong(len(path), rank), claim, SOURCE) for rank, claim in enumerate(claims)]


class HostileDrafter(ReplayDrafter):
    """Never right, and out of every bound: probabilities above 1, more candidates than asked for, ids that repeat."""

    name = "hostile"

    def _guesses(self, path: Sequence[int], k: int) -> list[Candidate]:
        wrong = Candidate(self._wrong(len(path)), math.inf, SOURCE)
        return [Candidate(wrong.token, 1e9, SOURCE), *[wrong] * (k + HOSTILE_WIDTH)]


REPLAY_KINDS: dict[str, type[ReplayDrafter]] = {
    each.name: each for each in (ReplayDrafter, UselessDrafter, HostileDrafter)
}
