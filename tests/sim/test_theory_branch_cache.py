"""The branch cache: fan-out laws, the hit probability and what a miss costs."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from acespec.proto.errors import UsageError
from acespec.sim.theory.acceptance import tokens_per_step
from acespec.sim.theory.branch_cache import (
    Tail,
    acespec_cycle_ms,
    acespec_fan_out,
    best_fan_out,
    best_first_fan_out,
    branch_cache_cycle_ms,
    branch_cache_ms,
    eta,
    hit_probability,
    ssd_fan_out,
    tree_budget,
)
from acespec.sim.theory.costs import Costs

chances = st.floats(0.05, 0.95)
depths = st.integers(1, 16)
exponents = st.floats(0.2, 3)


def test_the_printed_check_of_the_combined_law() -> None:
    fan_out = best_fan_out(40, 6, 0.8, 1)
    assert " ".join(f"{F:.2f}" for F in fan_out) == "5.90 5.27 4.72 4.22 3.77 3.37 6.75"
    assert f"{hit_probability(0.8, fan_out, Tail(1, 0.5), chain_goes_on=False):.4f}" == "0.9022"


@given(chances, depths, exponents, st.floats(1, 100))
def test_laws_are_geometric_and_spend_the_budget(a: float, D: int, b: float, branches: float) -> None:
    ratio = eta(a, b)
    for fan_out in (acespec_fan_out(D + branches, D, a, b), best_fan_out(D + branches, D, a, b)):
        assert sum(fan_out) == pytest.approx(branches)
        assert all(pytest.approx(fan_out[0] * ratio**k) == F for k, F in enumerate(fan_out[:D]))
    assert len(acespec_fan_out(D + branches, D, a, b)) == D
    first = branches * (1 - ratio) / (1 - ratio**D)
    assert acespec_fan_out(D + branches, D, a, b)[0] == pytest.approx(first)
    last = best_fan_out(D + branches, D, a, b)
    assert last[D] == pytest.approx(last[0] * ratio**D * (1 - a) ** (-1 / (1 + b)))
    assert last == ssd_fan_out(best_first_fan_out(D + branches, D, a, b), D, a, b)


@given(chances, depths, exponents, st.data())
def test_no_shift_of_alternatives_beats_the_best_law(a: float, D: int, b: float, data: st.DataObject) -> None:
    tail = Tail(b, 0.5)
    fan_out = list(best_fan_out(D + 20 * (D + 1), D, a, b))
    source, sink = data.draw(st.integers(0, D)), data.draw(st.integers(0, D))
    share = data.draw(st.floats(0.01, 0.9))
    moved = list(fan_out)
    moved[source] -= share * fan_out[source]
    moved[sink] += share * fan_out[source]
    assume(min(*fan_out, *moved) >= 1)
    best = hit_probability(a, fan_out, tail, chain_goes_on=False)
    assert hit_probability(a, moved, tail, chain_goes_on=False) <= best + 1e-12


@given(chances, depths, st.lists(st.floats(0, 50), min_size=17, max_size=17))
def test_a_hit_is_one_outcome_of_a_round(a: float, D: int, widths: list[float]) -> None:
    fan_out, tail = widths[: D + 1], Tail()
    hit = hit_probability(a, fan_out, tail)
    summed = sum(a**k * (1 - a) * tail.hit(fan_out[k]) for k in range(D)) + a**D * max(a, tail.hit(fan_out[D]))
    assert hit == pytest.approx(summed)
    assert a ** (D + 1) - 1e-12 <= hit <= 1 + 1e-12
    assert hit_probability(a, fan_out, Tail(c=0), chain_goes_on=False) <= 1 + 1e-12
    assert hit_probability(a, [2.0] * (D + 1), Tail(c=0)) == pytest.approx(1)
    assert hit_probability(a, [0.0] * (D + 1), tail, chain_goes_on=False) == 0
    assert hit_probability([a], fan_out, tail) == pytest.approx(hit)


def test_hits_follow_acceptance_by_depth() -> None:
    tail = Tail(b=1, c=0.5)
    # Rejected at once (.5, R(2) = .75), after one draft (.1, nothing prepared), all kept (.4, the chain goes on at .8).
    assert hit_probability([0.5, 0.8], [2, 0, 1], tail) == pytest.approx(0.5 * 0.75 + 0.4 * 0.8)


def test_the_tail_needs_a_whole_alternative() -> None:
    tail = Tail(b=2, c=0.4)
    assert (tail.hit(0.99), tail.hit(1), tail.hit(2)) == (0, 0.6, pytest.approx(0.9))
    assert tail.coverage(0.8, 2) == pytest.approx(1 - 0.2 * 0.4 / 4)
    assert tail.coverage(0.8, 0) == pytest.approx(0.8)


@pytest.mark.parametrize(("b", "c"), [(0, 0.5), (-1, 0.5), (1, -0.1), (1, 1.1)])
def test_what_is_no_tail_is_refused(b: float, c: float) -> None:
    with pytest.raises(UsageError, match="tail"):
        Tail(b, c)


def test_no_law_where_nothing_is_rejected() -> None:
    with pytest.raises(UsageError, match="nothing is ever rejected"):
        best_fan_out(40, 6, 1.0, 1.0)


@given(chances, depths, st.floats(0, 400), st.floats(0, 1), st.floats(0, 500))
def test_time_is_bounded_by_the_round_trip(a: float, D: int, tree: float, hit: float, R: float) -> None:
    costs = Costs(t_d=5, t_v=25, t_ar=25, R=R)
    E = tokens_per_step(a, D)
    T = branch_cache_ms(costs, a, D, tree, hit)
    assert T >= costs.C / E
    assert (max(tree, costs.C) + D * costs.t_d) / E + 1e-9 >= T
    assert pytest.approx(T * E) == branch_cache_cycle_ms(costs, D, tree, hit)
    assert branch_cache_ms(costs.over(R + 50), a, D, tree, hit) >= T
    charged = acespec_cycle_ms(costs, tree, hit, redraft_ms=D * costs.t_d)
    assert charged - branch_cache_cycle_ms(costs, D, tree, hit) == pytest.approx((1 - hit) * R, abs=1e-9)


def test_only_a_tree_slower_than_the_wait_slows_the_round() -> None:
    costs = Costs(t_d=5, t_v=25, t_ar=25, R=75)
    assert [branch_cache_cycle_ms(costs, 6, tree, 0.9) for tree in (0, 100, 130)] == pytest.approx([103, 103, 133])


@pytest.mark.parametrize(
    ("R", "most", "budget"), [(60, 64, 20), (60, 16, 16), (0, 64, 0), (61.9, 64, 20), (62, 64, 21)]
)
def test_the_tree_grows_while_it_ends_within_the_wait(R: float, most: int, budget: int) -> None:
    costs = Costs(t_d=5, t_v=20, t_ar=20, R=R, tau=1000)
    assert tree_budget(lambda nodes: 40 + 2 * nodes, costs, most) == budget
