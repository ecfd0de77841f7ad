"""The hybrid drafter: n-grams where they are confident, a language model elsewhere.

A confident n-gram guess costs microseconds where the model costs a forward pass; the tokens it supplies reach the model
in one later pass over several rows. Both see every commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acespec.edge.drafters.base import Candidate, Drafter, TurnContext

CONFIDENT = 0.7


class HybridDrafter:
    """`quick` answers where its best guess reaches `confident`; otherwise `model` does, and `quick` fills up to k."""

    name = "hybrid"

    def __init__(self, quick: Drafter, model: Drafter, confident: float = CONFIDENT) -> None:
        self._quick = quick
        self._model = model
        self._confident = confident

    @property
    def should_stop(self) -> Callable[[], bool]:
        """Passed on to the model: only its work is long."""
        return self._model.should_stop

    @should_stop.setter
    def should_stop(self, stop: Callable[[], bool]) -> None:
        self._model.should_stop = stop

    @property
    def proposal_s(self) -> float | None:
        """The model's: what a proposal costs where it is needed."""
        return self._model.proposal_s

    def begin(self, turn: TurnContext) -> None:
        """See `Drafter.begin`."""
        self._quick.begin(turn)
        self._model.begin(turn)

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        """See `Drafter.propose`."""
        quick = self._quick.propose(path, k)
        if quick and quick[0].probability >= self._confident:
            return quick
        return _joined(self._model.propose(path, k), quick)[:k]

    def commit(self, tokens: Sequence[int], start: int) -> None:
        """See `Drafter.commit`."""
        self._quick.commit(tokens, start)
        self._model.commit(tokens, start)

    def close(self) -> None:
        """See `Drafter.close`."""
        self._quick.close()
        self._model.close()


def _joined(first: list[Candidate], then: list[Candidate]) -> list[Candidate]:
    known = {candidate.token for candidate in first}
    return first + [candidate for candidate in then if candidate.token not in known]
