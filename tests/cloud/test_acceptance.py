"""How many draft rows pay: a session's own acceptance against what rows cost."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from acespec.cloud.acceptance import ALLOWANCE, ENOUGH, PRIOR, SAVINGS, SHARE, Acceptance, Trial
from acespec.cloud.draft_tree import DraftTree
from acespec.proto.nodes import ROOT, Node
from acespec.proto.timing_profile import TimingProfile


def curve(*points: tuple[int, float]) -> Callable[[int], float]:
    return TimingProfile("test", points, 0.0, 1000.0, "made up").step_s


def chain(length: int) -> DraftTree:
    tree = DraftTree([1], 256)
    tree.add(0, [Node(ROOT if i == 0 else i - 1, i) for i in range(length)], 1)
    return tree


def chain_trials(drafted: int, accepted: int) -> list[Trial]:
    return [(1, 0)] * accepted + [(1, None)] * (drafted > accepted)


COST = curve((1, 1.0), (4, 1.0), (16, 2.5), (64, 10.0))


def depth(estimate: Acceptance, available: int, cost: Callable[[int], float], rows: int = 63) -> int:
    return len(estimate.rows_that_pay(chain(available), 16, ladder(cost, rows))[0])


def ladder(cost: Callable[[int], float], drafts: int) -> list[float]:
    return [cost(max(1, rows)) for rows in range(drafts + 2)]


def trained(trials: list[Trial], times: int = 200, max_depth: int = 16) -> Acceptance:
    estimate = Acceptance(max_depth)
    for _ in range(times):
        estimate.observe(trials)
    return estimate


def test_free_rows_are_always_taken() -> None:
    assert depth(trained(chain_trials(8, 0)), 16, COST) == 3


def test_a_useless_drafter_is_cut_and_probed() -> None:
    steep = curve((1, 1.0), (64, 64.0))
    hopeless = trained(chain_trials(8, 0))
    depths = [depth(hopeless, 16, steep) for _ in range(64)]
    assert depths.count(0) == 60
    assert depths.count(1) == 4


def test_a_good_drafter_gets_deep_drafts() -> None:
    good = trained(chain_trials(16, 16))
    assert depth(good, 16, COST) == 15, "row 17 costs more than its token is worth"
    assert depth(good, 5, COST) == 5
    assert depth(good, 16, COST, rows=4) == 4


def test_rows_count_for_more_where_others_share_the_step() -> None:
    """A row must earn its time at the rate of the whole step, not of its own session alone."""
    fair = trained(chain_trials(4, 1), times=20)
    lone = len(fair.rows_that_pay(chain(8), 8, ladder(lambda rows: 1.0 + 0.15 * rows, 8))[0])
    crowd = len(fair.rows_that_pay(chain(8), 8, ladder(lambda rows: 1.0 + 0.15 * rows, 8), before=20.0)[0])
    assert crowd < lone


@pytest.mark.parametrize("points", [[(1, 1.0), (2, 1.9), (64, 8.0)], [(1, 1.0), (64, 4.0)], [(1, 1.0), (64, 64.0)]])
@pytest.mark.parametrize("right", [0.0, 0.05, 0.3])
def test_drafts_never_cost_more_than_their_budget(points: list[tuple[int, float]], right: float) -> None:
    cost, estimate, dice = curve(*points), Acceptance(16), random.Random(1)
    spent = 0.0
    for steps in range(1, 2001):
        drafted = depth(estimate, 16, cost)
        accepted = next((i for i in range(drafted) if dice.random() >= right), drafted)
        spent += cost(drafted + 1) / cost(1) - 1 - accepted
        estimate.observe(chain_trials(drafted, accepted))
        assert spent <= ALLOWANCE + SHARE * steps


def test_a_drafter_that_turns_bad_lives_on_its_savings_only() -> None:
    steep, estimate = curve((1, 1.0), (64, 16.0)), Acceptance(16)
    for _ in range(500):
        drafted = depth(estimate, 16, steep)
        estimate.observe(chain_trials(drafted, drafted))
    spent = 0.0
    for steps in range(1, 500):
        drafted = depth(estimate, 16, steep)
        spent += steep(drafted + 1) - 1
        estimate.observe(chain_trials(drafted, 0))
        assert spent <= SAVINGS + SHARE * steps


def test_only_depths_that_were_reached_are_learned() -> None:
    estimate = trained(chain_trials(8, 2), times=100, max_depth=8)
    assert estimate.survival(2) > 0.95
    assert estimate.survival(3) < 0.05
    assert estimate.survival(4) == pytest.approx(estimate.survival(3) * PRIOR)


def test_enough_follows_survival() -> None:
    assert trained(chain_trials(16, 16)).enough == 16
    assert trained(chain_trials(16, 0)).enough == 1
    middling = Acceptance(16)
    assert middling.survival(middling.enough) >= ENOUGH > middling.survival(middling.enough + 1)


def test_expected_tokens_count_the_bonus() -> None:
    estimate = Acceptance(4)
    assert estimate.expected(0) == 1.0
    assert estimate.expected(2) == pytest.approx(1 + PRIOR + PRIOR**2)


def tree_of(*nodes: tuple[int, int]) -> DraftTree:
    tree = DraftTree([1], 256)
    tree.add(0, [Node(parent, token) for parent, token in nodes], 1)
    return tree


def test_siblings_are_taken_in_the_order_of_their_chances() -> None:
    """A second guess near the tip is worth more than a first guess deep in an unlikely chain."""
    tree = tree_of((ROOT, 10), (ROOT, 20), (0, 11), (2, 12), (3, 13), (1, 21))
    fair = trained([(2, 1)], times=3)
    picks, _ = fair.rows_that_pay(tree, 8, ladder(lambda rows: 1.0, 4))
    assert [(pick.token, pick.parent) for pick in picks] == [(10, 0), (11, 1), (20, 0), (12, 2)]
    good = trained([(2, 0), (1, 0), (1, 0), (1, 0)])
    picks, expected = good.rows_that_pay(tree, 8, ladder(lambda rows: 1.0, 4))
    assert [pick.token for pick in picks] == [10, 11, 12, 13]
    assert [pick.parent for pick in picks] == [0, 1, 2, 3]
    assert expected > 4.5


def test_second_guesses_are_learned_only_where_the_first_was_wrong() -> None:
    tree = tree_of((ROOT, 10), (ROOT, 20))
    estimate = trained([(2, 1)])
    picks, expected = estimate.rows_that_pay(tree, 8, ladder(lambda rows: 1.0, 2))
    assert [pick.token for pick in picks] == [20, 10]
    assert expected == pytest.approx(2.0, abs=0.01)
    estimate = trained([(2, 0)])
    before = estimate._sides[1]
    estimate.observe([(2, 0)])
    assert estimate._sides[1] == before
