"""How a row is drawn depends on its own prefix alone: penalties, bans and masks with any drafts (B28, B32)."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.cloud.draw_rule import DrawRule
from acespec.proto.logprobs import TokenLogprobs
from acespec.proto.sampling_params import SamplingParams
from tests.cloud.rows import block_of, drafted, plain, row_of, step

VOCAB = 24
PROMPT = [3, 1, 4, 1]

PENALISED = SamplingParams(
    temperature=0.9,
    min_p=0.02,
    repetition_penalty=1.3,
    frequency_penalty=0.7,
    presence_penalty=0.4,
    logit_bias=((5, 2.0), (1, -1.5)),
)


def expected_token(prefix: list[int], rule: DrawRule) -> int:
    """Penalties as one would explain them, each exactly once, then the rest of the pipeline without any."""
    p = rule.params
    row = row_of(prefix, VOCAB)
    for token in set(prefix):
        factor = np.float32(p.repetition_penalty)
        row[token] = row[token] / factor if row[token] > 0 else row[token] * factor
    generated = prefix[rule.prompt_len :]
    for token in set(generated):
        row[token] -= np.float32(p.frequency_penalty) * np.float32(generated.count(token))
        row[token] -= np.float32(p.presence_penalty)
    for token, bias in p.logit_bias:
        row[token] += np.float32(bias)
    bare = DrawRule(SamplingParams(temperature=p.temperature, min_p=p.min_p), rule.seed, rule.prompt_len)
    return bare.draw(row, len(prefix), [], VOCAB)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_penalties_count_every_emitted_token_exactly_once(seed: int) -> None:
    rule = DrawRule(PENALISED, seed, len(PROMPT))
    tokens = list(PROMPT)
    for _ in range(20):
        tokens.append(expected_token(tokens, rule))
    assert plain(PROMPT, rule, VOCAB, 20) == tokens[len(PROMPT) :]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**9),
    temperature=st.sampled_from([0.0, 0.5, 1.5]),
    length=st.integers(1, 8),
    right=st.floats(0, 1),
    least=st.integers(0, 25),
)
def test_drafts_change_neither_tokens_nor_what_counts_for_a_penalty(
    seed: int, temperature: float, length: int, right: float, least: int
) -> None:
    params = SamplingParams(temperature, 0, 0.95, 0.02, 1.3, 0.7, 0.4, ((5, 2.0),))
    rule = DrawRule(params, seed, len(PROMPT), banned=(5, 7), min_tokens=least)
    truth = plain(PROMPT, rule, VOCAB, 24)
    assert not {5, 7} & set(truth[:least])
    dice = random.Random(seed)
    tokens = list(PROMPT)
    while len(tokens) < len(PROMPT) + 24:
        coming = truth[len(tokens) - len(PROMPT) :][:length]
        draft = [t if dice.random() < right else dice.randrange(VOCAB) for t in coming]
        tokens += step(block_of(tokens, draft, rule), VOCAB).tokens
    assert tokens[len(PROMPT) :][:24] == truth
    assert drafted(PROMPT, rule, VOCAB, 24, [truth[:3], [5, 5, 5], []]) == truth


@pytest.mark.parametrize("top", [0, 3, 20])
def test_log_probabilities_are_those_of_the_row_itself_with_any_drafts(top: int) -> None:
    rule = DrawRule(PENALISED, 11, len(PROMPT), top_logprobs=top)
    tokens, reported = list(PROMPT), []
    truth = plain(PROMPT, rule, VOCAB, 20)
    while len(tokens) < len(PROMPT) + 20:
        drawn = step(block_of(tokens, [*truth[len(tokens) - len(PROMPT) :][:3], 9], rule), VOCAB)
        assert len(drawn.logprobs) == len(drawn.tokens)
        tokens += drawn.tokens
        reported += drawn.logprobs
    for at in range(20):
        row = row_of(tokens[: len(PROMPT) + at], VOCAB).astype(np.float64)
        expected = row - np.log(np.exp(row).sum())
        item = reported[at]
        assert item.logprob == pytest.approx(expected[truth[at]], abs=1e-6)
        assert [i for i, _ in item.top] == np.argsort(-row, kind="stable")[:top].tolist()
        assert all(value == pytest.approx(expected[i], abs=1e-6) for i, value in item.top)
    alone = [step(block_of(tokens[: len(PROMPT) + at], (), rule), VOCAB).logprobs[0] for at in range(20)]
    assert reported[:20] == alone, "bit for bit"


def test_nothing_is_reported_that_was_not_asked_for() -> None:
    rule = DrawRule(PENALISED, 11, len(PROMPT))
    assert rule.logprobs(row_of(PROMPT, VOCAB), 3, VOCAB) == ()


def test_a_row_without_any_finite_logit_still_has_a_log_probability() -> None:
    rule = DrawRule(SamplingParams(), 1, 0, top_logprobs=1)
    (item,) = rule.logprobs(np.full(4, np.nan, np.float32), 0, 4)
    assert item == TokenLogprobs(-np.inf, ((0, -np.inf),))
    (item,) = rule.logprobs(np.array([1.0, np.inf, -np.inf, np.nan], np.float32), 1, 4)
    assert item == TokenLogprobs(0.0, ((1, 0.0),))
