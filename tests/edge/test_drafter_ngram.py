"""The n-gram drafter: pure in (committed text, path), learning, calibrated, following the noise, fast."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.edge.drafters.base import TurnContext
from acespec.edge.drafters.calibration import Calibration
from acespec.edge.drafters.ngram import FLOOR, NgramDrafter
from acespec.proto.noise import gumbel
from acespec.proto.sampling import sample
from acespec.proto.sampling_params import SamplingParams

VOCAB = 1000
GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=1.0)

ids = st.lists(st.integers(0, 4), max_size=30)


def turn(prompt_len: int, params: SamplingParams = GREEDY, seed: int = 1, vocab: int = VOCAB) -> TurnContext:
    return TurnContext(params, seed, prompt_len, vocab)


def taught(prompt: Sequence[int], committed: Sequence[int], **kwargs: object) -> NgramDrafter:
    drafter = NgramDrafter()
    drafter.begin(turn(len(prompt), **kwargs))  # type: ignore[arg-type]
    drafter.propose(list(prompt))
    drafter.commit(committed, len(prompt))
    return drafter


def accepted(drafter: NgramDrafter, text: Sequence[int], prompt_len: int) -> list[bool]:
    """Serves one turn without drafts longer than one: was the best guess right at each position?"""
    hits = []
    for at in range(prompt_len, len(text)):
        guess = drafter.propose(text[:at])
        hits.append(bool(guess) and guess[0].token == text[at])
        drafter.commit(text[at : at + 1], at)
    return hits


@given(ids, st.lists(ids, max_size=6), st.lists(ids, max_size=8), st.booleans())
def test_proposals_do_not_depend_on_earlier_proposals(
    prompt: list[int], commits: list[list[int]], drafts: list[list[int]], greedy: bool
) -> None:
    params = GREEDY if greedy else SAMPLED
    busy, quiet = NgramDrafter(), NgramDrafter()
    text = list(prompt)
    for drafter in (busy, quiet):
        drafter.begin(turn(len(prompt), params))
        drafter.propose(text)
    for tokens in commits:
        for draft in drafts:
            busy.propose(text + draft, 3)
        for drafter in (busy, quiet):
            drafter.commit(tokens, len(text))
        text += tokens
        assert busy.propose(text, 3) == quiet.propose(text, 3)


@given(ids, st.lists(ids, min_size=1, max_size=6), ids)
def test_commit_boundaries_and_resent_tokens_change_nothing(
    prompt: list[int], commits: list[list[int]], draft: list[int]
) -> None:
    whole = [token for tokens in commits for token in tokens]
    at_once = taught(prompt, whole)
    piecewise = NgramDrafter()
    piecewise.begin(turn(len(prompt)))
    at = len(prompt)
    for number, tokens in enumerate(commits):
        piecewise.commit(tokens, at)
        if number % 2:
            piecewise.commit(tokens, at)
            piecewise.propose([*prompt, *whole][: at + len(tokens)])
        at += len(tokens)
    path = [*prompt, *whole, *draft]
    assert piecewise.propose(path, 3) == at_once.propose(path, 3)


@given(ids, ids, ids, ids)
def test_a_new_turn_reuses_the_prefix_and_nothing_else(a: list[int], b: list[int], c: list[int], d: list[int]) -> None:
    old = NgramDrafter()
    old.begin(turn(len(a + b)))
    old.propose(a + b)
    fresh = NgramDrafter()
    for drafter in (old, fresh):
        drafter.begin(turn(len(a + c)))
    assert old.propose(a + c + d, 3) == fresh.propose(a + c + d, 3)


def test_a_resumed_part_is_read_from_the_path() -> None:
    drafter = NgramDrafter()
    drafter.begin(turn(3))
    drafter.commit([9], 8)
    guesses = drafter.propose([1, 2, 3, 4, 5, 6, 2, 3, 9, 2, 3])
    assert guesses[0].token == 9
    assert drafter._own.text == [1, 2, 3, 4, 5, 6, 2, 3, 9]


def test_it_learns_in_turns_where_nobody_asked_for_a_guess() -> None:
    drafter = NgramDrafter()
    drafter.begin(turn(100))
    drafter.commit([5, 6, 7, 8], 100)
    drafter.begin(turn(2))
    assert drafter.propose([5, 6])[0].token == 7


def test_the_prompt_counts_as_context_but_not_as_the_targets_word() -> None:
    drafter = NgramDrafter()
    drafter.begin(turn(5))
    assert drafter.propose([1, 2, 3, 1, 2])[0].source == "own"
    assert len(drafter._table) == 0


def test_acceptance_rises_on_a_repetitive_stream() -> None:
    dice = random.Random(3)
    phrases = [[dice.randrange(VOCAB) for _ in range(8)] for _ in range(6)]
    text = [token for _ in range(60) for token in dice.choice(phrases)]
    drafter = NgramDrafter()
    drafter.begin(turn(0))
    hits = accepted(drafter, text, 0)
    assert sum(hits[:48]) < 0.5 * 48
    # Seven of eight tokens of a phrase are certain; which phrase comes next is not.
    assert sum(hits[-240:]) > 0.85 * 240


def test_what_was_learned_in_one_turn_helps_another_text() -> None:
    dice = random.Random(4)
    follows = [dice.randrange(200) for _ in range(200)]

    def stream(length: int) -> list[int]:
        text = [dice.randrange(200)]
        while len(text) < length:
            text.append(follows[text[-1]] if dice.random() < 0.8 else dice.randrange(200))
        return text

    drafter = NgramDrafter()
    drafter.begin(turn(0))
    first = accepted(drafter, stream(200), 0)
    drafter.commit([t for _ in range(10) for t in stream(200)], 200)
    drafter.begin(turn(1))
    later = accepted(drafter, stream(200), 1)
    assert sum(first) < 60
    assert sum(later) > 130


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_probabilities_mean_what_they_say(params: SamplingParams) -> None:
    """A Markov target with uncertain steps: among guesses said to hold with chance p, about a share p does."""
    dice = np.random.default_rng(5)
    rows = np.log(dice.dirichlet(np.full(40, 0.08), size=40) + 1e-6).astype(np.float32)
    drafter = NgramDrafter()
    drafter.begin(turn(1, params, seed=11, vocab=40))
    text, said, held = [0], [], []
    for at in range(1, 4000):
        token = sample(rows[text[-1]], SAMPLED, 11, at)
        guess = drafter.propose(text)
        if at > 1500 and guess:
            said.append(guess[0].probability)
            held.append(guess[0].token == token)
        drafter.commit([token], at)
        text.append(token)
    claims, truths = np.array(said), np.array(held)
    assert abs(claims.mean() - truths.mean()) < 0.05
    for low in (0.2, 0.4, 0.6, 0.8):
        inside = (claims >= low) & (claims < low + 0.2)
        if inside.sum() > 150:
            assert abs(claims[inside].mean() - truths[inside].mean()) < 0.12


def test_sampled_guesses_follow_the_noise() -> None:
    """B24: with shared noise a known two-way choice is guessed far better than its likelier side could be."""
    row = np.full(VOCAB, -np.inf, dtype=np.float32)
    row[[3, 4]] = np.log([0.6, 0.4]).astype(np.float32)
    drafter = NgramDrafter()
    drafter.begin(turn(1, SAMPLED, seed=7))
    text, hits = [9], []
    for at in range(1, 600):
        # Every other token is a fixed one, so the choice always follows the same context.
        token = sample(row, SAMPLED, 7, at) if text[-1] == 9 else 9
        guess = drafter.propose(text, 2)
        if at > 300 and text[-1] == 9:
            hits.append(guess[0].token == token)
            assert {c.token for c in guess} == {3, 4}
        drafter.commit([token], at)
        text.append(token)
    assert np.mean(hits) > 0.85


def test_siblings_are_ranked_by_log_q_plus_noise() -> None:
    drafter = taught([], [1, 2, 1, 3, 1, 3, 1, 4, 1], params=SAMPLED, seed=99)
    text = [1, 2, 1, 3, 1, 3, 1, 4, 1]
    masses = drafter._table.distribution(text, len(text))
    noise = gumbel(99, len(text), VOCAB)
    expected = sorted(masses, key=lambda t: -(np.log(masses[t]) + noise[t]))
    assert [token for token, _ in drafter._ranked(text, 4)] == expected


@given(ids, ids, st.integers(1, 6), st.sampled_from([GREEDY, SAMPLED]))
def test_candidates_are_distinct_ordered_and_inside_the_vocabulary(
    prompt: list[int], committed: list[int], k: int, params: SamplingParams
) -> None:
    drafter = taught(prompt, committed, params=params, vocab=4)
    guesses = drafter.propose(prompt + committed, k)
    assert len(guesses) <= k
    assert len({c.token for c in guesses}) == len(guesses)
    assert all(c.token < 4 and FLOOR <= c.probability <= 1 for c in guesses)
    assert [c.probability for c in guesses] == sorted((c.probability for c in guesses), reverse=True)


def test_a_sequence_of_four_thousand_tokens_is_drafted_quickly() -> None:
    """The budget is 50 microseconds a guess; the bound is wide because test machines are busy."""
    dice = random.Random(6)
    phrases = [[dice.randrange(VOCAB) for _ in range(5)] for _ in range(200)]
    text = [token for _ in range(800) for token in dice.choice(phrases)]
    drafter = taught(text[:2000], text[2000:])
    best = min(_seconds(drafter, text) for _ in range(20))
    assert best < 100e-6


def _seconds(drafter: NgramDrafter, text: list[int]) -> float:
    path = list(text)
    began = time.perf_counter()
    for _ in range(20):
        guess = drafter.propose(path)
        path.append(guess[0].token if guess else 0)
    return (time.perf_counter() - began) / 20


def test_silent_before_the_first_turn() -> None:
    drafter = NgramDrafter()
    assert drafter.propose([1, 2, 3]) == []
    drafter.close()


@settings(max_examples=50)
@given(st.lists(st.booleans(), max_size=600))
def test_calibration_stays_between_its_evidence(outcomes: list[bool]) -> None:
    rates = Calibration([0.5, 0.5], memory=64)
    for hit in outcomes:
        rates.observe(0, hit)
    assert 0 < rates.estimate(0) < 1
    assert rates.estimate(1) == 0.5
    copy = Calibration([0.5, 0.5], memory=64)
    assert copy.restore(rates.dump())
    assert copy.estimate(0) == pytest.approx(rates.estimate(0), abs=1e-6)


def test_calibration_forgets() -> None:
    rates = Calibration([0.5])
    for _ in range(2000):
        rates.observe(0, False)
    for _ in range(400):
        rates.observe(0, True)
    assert rates.estimate(0) > 0.6
