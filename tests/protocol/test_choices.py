"""n answers: each has a seed of its own, and only the first session sends the prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.choices import choices
from acespec.edge.turn_request import TurnRequest, as_sent
from acespec.proto.errors import InvalidRequest, UsageError
from acespec.proto.messages import Unserved
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.seeds import choice_seed
from tests.e2e.local import edge, one_at_a_time, tiny_model, verifier

PARAMS = as_sent(SamplingParams(temperature=1.0))
REQUEST = TurnRequest(params=PARAMS, seed=77, max_tokens=24)
SEEDS = st.integers(0, 2**64 - 1)


def test_seeds_are_what_they_always_were() -> None:
    """These values are part of the contract: another library must be able to ask for answer 3 alone."""
    assert [choice_seed(7, i) for i in range(3)] == [7, 15590302827902478642, 6298774614089527215]


@given(SEEDS, SEEDS, st.integers(0, 200), st.integers(0, 200))
def test_seeds_do_not_collide(a: int, b: int, i: int, j: int) -> None:
    assert (choice_seed(a, i) == choice_seed(b, j)) == ((a, i) == (b, j))


def test_no_answer_comes_before_the_first() -> None:
    assert choice_seed(2**64 + 5, 0) == 5
    with pytest.raises(ValueError, match="answer -1"):
        choice_seed(1, -1)


async def test_three_answers_are_those_of_three_requests() -> None:
    model = tiny_model("llama")
    prompt = model.tokenizer.encode("a prompt of some length that is sent once, whatever the number of answers")
    async with verifier(model, step_s=0.001) as address:
        answers = await choices(lambda: edge(address, model), prompt, REQUEST, 3)
    truth = [
        tuple(one_at_a_time(model.runner, prompt, PARAMS, choice_seed(77, i), 24, model.tokenizer.eos_ids))
        for i in range(3)
    ]
    assert [answer.token_ids for answer in answers] == truth
    assert len(set(truth)) == 3
    assert [answer.terms.kept for answer in answers] == [0, len(prompt), len(prompt)]
    assert {answer.reconnects + answer.resyncs for answer in answers} == {0}
    assert answers[1].wire.up_payload_bytes < answers[0].wire.up_payload_bytes


async def test_one_refusal_ends_them_all() -> None:
    model = tiny_model("llama")
    async with verifier(model) as address:
        with pytest.raises(InvalidRequest, match="suffix"):
            refused = TurnRequest(seed=1, max_tokens=4, extra=Unserved(suffix="x"))
            await choices(lambda: edge(address, model), [1, 2, 3], refused, 2)
        with pytest.raises(UsageError, match="n = 0"):
            await choices(lambda: edge(address, model), [1, 2, 3], REQUEST, 0)
