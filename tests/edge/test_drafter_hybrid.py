"""The hybrid drafter: the quick one where it is sure, the model elsewhere, both in step."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from acespec.edge.drafters.base import Candidate, QuietDrafter, TurnContext
from acespec.edge.drafters.hybrid import HybridDrafter
from acespec.edge.drafters.ngram import NgramDrafter
from acespec.proto.sampling_params import SamplingParams
from tests.drafters import OracleDrafter

TURN = TurnContext(SamplingParams(), 1, 3, 100)


class Recorder(QuietDrafter):
    """Says one fixed thing and writes down what it is told."""

    def __init__(self, token: int, probability: float) -> None:
        super().__init__()
        self.said = [Candidate(token, probability, "lm")]
        self.heard: list[object] = []

    def begin(self, turn: TurnContext) -> None:
        self.heard.append(turn)

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        self.heard.append(list(path))
        return self.said

    def commit(self, tokens: Sequence[int], start: int) -> None:
        self.heard.append((list(tokens), start))

    def close(self) -> None:
        self.heard.append("close")


@pytest.mark.parametrize(("sure", "expected"), [(0.9, [7]), (0.7, [7]), (0.69, [8, 7])])
def test_the_model_is_asked_only_where_the_quick_one_is_unsure(sure: float, expected: list[int]) -> None:
    quick, model = Recorder(7, sure), Recorder(8, 0.4)
    hybrid = HybridDrafter(quick, model)
    assert [c.token for c in hybrid.propose([1, 2, 3], 2)] == expected
    assert bool(model.heard) == (expected[0] == 8)


def test_the_same_token_is_not_said_twice_and_k_is_kept() -> None:
    assert [c.token for c in HybridDrafter(Recorder(8, 0.3), Recorder(8, 0.4)).propose([1], 2)] == [8]
    assert [c.token for c in HybridDrafter(Recorder(7, 0.3), Recorder(8, 0.4)).propose([1], 1)] == [8]


def test_both_hear_everything() -> None:
    quick, model = Recorder(7, 0.9), Recorder(8, 0.4)
    hybrid = HybridDrafter(quick, model)
    hybrid.begin(TURN)
    hybrid.commit([5, 6], 3)
    hybrid.close()
    assert quick.heard == model.heard == [TURN, ([5, 6], 3), "close"]


def test_a_stop_reaches_the_model() -> None:
    model = QuietDrafter()
    hybrid = HybridDrafter(QuietDrafter(), model)
    hybrid.should_stop = lambda: True
    assert model.should_stop()
    assert hybrid.should_stop()


def test_with_a_right_model_and_real_ngrams_most_guesses_are_right_and_the_model_rests() -> None:
    text = [1, 2, 3, *([10, 11, 12, 13, 14, 15, 16, 17] * 12)]
    calls: list[int] = []

    class Counted(OracleDrafter):
        def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
            calls.append(len(path))
            return super().propose(path, k)

    model = Counted(text)
    hybrid = HybridDrafter(NgramDrafter(), model)
    hybrid.begin(TURN)
    hits = 0
    for at in range(3, len(text)):
        hits += hybrid.propose(text[:at])[0].token == text[at]
        hybrid.commit([text[at]], at)
    assert hits == len(text) - 3
    assert len(calls) < 20
