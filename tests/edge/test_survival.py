"""Survival estimates: they come to mean what they say, by source, confidence, depth and rank."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.brain.survival import Guess, Outcome, SurvivalEstimates, expected_calibration_error

GUESSES = st.builds(
    Guess,
    source=st.sampled_from(["own", "table", "lm"]),
    depth=st.integers(1, 40),
    claim=st.floats(0.0, 1.0),
    rank=st.integers(0, 9),
)


def learn(
    estimates: SurvivalEstimates, guess: Callable[[random.Random], Guess], truth: Callable[[Guess], float], count: int
) -> list[Outcome]:
    dice = random.Random(3)
    seen = []
    for _ in range(count):
        made = guess(dice)
        outcome = Outcome(made, estimates.estimate(made), dice.random() < truth(made))
        estimates.observe(outcome)
        seen.append(outcome)
    return seen


def test_an_unknown_guess_is_worth_what_is_claimed() -> None:
    assert SurvivalEstimates().estimate(Guess("lm", 3, 0.7)) == 0.7


def test_claims_are_corrected_by_what_comes_true() -> None:
    estimates = SurvivalEstimates()
    learn(estimates, lambda dice: Guess("lm", 1, 0.9), lambda guess: 0.3, 400)
    assert estimates.estimate(Guess("lm", 1, 0.9)) == pytest.approx(0.3, abs=0.15)
    assert estimates.estimate(Guess("lm", 4, 0.2)) < 0.12, "what is known of a source holds for its other guesses"
    assert estimates.estimate(Guess("own", 1, 0.9)) == 0.9, "sources are told apart"


def test_depths_and_buckets_are_told_apart() -> None:
    estimates = SurvivalEstimates()
    learn(
        estimates,
        lambda dice: Guess("lm", dice.choice((1, 8)), dice.choice((0.4, 0.95))),
        lambda guess: guess.claim * (1.0 if guess.depth == 1 else 0.5),
        3000,
    )
    assert estimates.estimate(Guess("lm", 1, 0.95)) == pytest.approx(0.95, abs=0.15)
    assert estimates.estimate(Guess("lm", 8, 0.95)) == pytest.approx(0.47, abs=0.2)
    assert estimates.estimate(Guess("lm", 8, 0.4)) == pytest.approx(0.2, abs=0.12)
    assert estimates.estimate(Guess("lm", 2, 0.4)) < 0.4, "a depth never seen goes by the others"


def test_siblings_have_their_own_chance_given_that_those_before_are_wrong() -> None:
    estimates = SurvivalEstimates()
    first = estimates.estimate(Guess("lm", 1, 0.9, rank=1))
    learn(estimates, lambda dice: Guess("lm", 1, 0.3, rank=dice.choice((1, 2))), lambda g: 0.8 / g.rank, 600)
    assert first == 0.5
    assert estimates.estimate(Guess("lm", 1, 0.3, rank=1)) == pytest.approx(0.8, abs=0.12)
    assert estimates.estimate(Guess("lm", 1, 0.3, rank=2)) == pytest.approx(0.4, abs=0.12)
    assert estimates.estimate(Guess("lm", 1, 0.3)) == 0.3


def test_a_change_is_followed_within_some_dozens() -> None:
    estimates = SurvivalEstimates()
    learn(estimates, lambda dice: Guess("lm", 1, 0.9), lambda guess: 0.9, 500)
    learn(estimates, lambda dice: Guess("lm", 1, 0.9), lambda guess: 0.2, 120)
    assert estimates.estimate(Guess("lm", 1, 0.9)) < 0.4


def test_a_distrusted_drafter_gets_another_chance() -> None:
    estimates = SurvivalEstimates()
    learn(estimates, lambda dice: Guess("lm", 1, 0.99), lambda guess: 0.0, 300)
    assert estimates.estimate(Guess("lm", 1, 0.99)) < 0.05
    estimates.relax(800)
    assert estimates.estimate(Guess("lm", 1, 0.99)) > 0.4


def test_the_calibration_error_is_small_after_learning_and_large_before() -> None:
    estimates = SurvivalEstimates()
    seen = learn(
        estimates,
        lambda dice: Guess(dice.choice(("own", "lm")), dice.randint(1, 6), dice.choice((0.3, 0.6, 0.9))),
        lambda guess: 0.6 * guess.claim if guess.source == "lm" else min(1.0, 1.1 * guess.claim),
        4000,
    )
    claimed = [Outcome(o.guess, o.guess.claim, o.right) for o in seen]
    assert expected_calibration_error(claimed) > 0.05
    assert expected_calibration_error(seen[500:]) < 0.03
    assert estimates.calibration_error == pytest.approx(expected_calibration_error(seen))
    assert estimates.observed == 4000


def test_the_calibration_error_is_the_mean_gap_by_bin() -> None:
    guess = Guess("lm", 1, 0.5)
    outcomes = [Outcome(guess, 0.25, True), Outcome(guess, 0.25, False), Outcome(guess, 0.85, True)]
    assert expected_calibration_error(outcomes) == pytest.approx((2 * 0.25 + 0.15) / 3)
    assert expected_calibration_error([]) == 0.0


@given(st.lists(st.tuples(GUESSES, st.booleans()), max_size=60), GUESSES)
def test_estimates_are_chances_whatever_was_seen(history: list[tuple[Guess, bool]], guess: Guess) -> None:
    estimates = SurvivalEstimates()
    for seen, right in history:
        estimates.observe(Outcome(seen, estimates.estimate(seen), right))
    assert 0.0 <= estimates.estimate(guess) <= 1.0
