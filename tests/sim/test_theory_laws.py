"""What must hold of the closed forms whatever the numbers: limits, order, optima, propositions of the papers."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from acespec.proto.errors import UsageError
from acespec.sim.theory import acceptance, capacity, distance, pipelines, single_session, stopping
from acespec.sim.theory.costs import Costs

FAR = 1e9
chances = st.floats(0.05, 0.98)
depths = st.integers(1, 24)
times = st.floats(0.5, 200)
links = st.floats(0, 800)
by_depth = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@st.composite
def sessions(draw: st.DrawFn) -> Costs:
    return Costs(draw(times), draw(times), draw(times), draw(links), draw(links), draw(times))


@given(chances, depths)
def test_counts_of_one_chance_are_geometric(a: float, D: int) -> None:
    assert acceptance.tokens_per_step(a, D) == pytest.approx((1 - a ** (D + 1)) / (1 - a))
    assert acceptance.tokens_without_bonus(a, D) == pytest.approx((1 - a**D) / (1 - a))
    assert acceptance.tokens_per_step([a], D) == pytest.approx(acceptance.tokens_per_step(a, D))
    assert acceptance.accepted_drafts(a, D) == pytest.approx(acceptance.tokens_per_step(a, D) - 1)


def test_certain_and_impossible_drafts() -> None:
    assert acceptance.tokens_per_step(1, 7) == 8
    assert acceptance.tokens_per_step(0, 7) == 1
    assert acceptance.tokens_without_bonus(0.5, 0) == 0
    assert acceptance.survival(0.3, 0) == 1


def test_acceptance_by_depth_holds_its_last_value() -> None:
    assert acceptance.survivals([0.5, 0.8], 4) == pytest.approx((0.5, 0.4, 0.32, 0.256))


@pytest.mark.parametrize("a", [-0.1, 1.1, math.nan, [], [0.5, 2.0]])
def test_what_is_no_chance_is_refused(a: float | list[float]) -> None:
    with pytest.raises(UsageError, match="acceptance"):
        acceptance.tokens_per_step(a, 3)


@pytest.mark.parametrize("field", ["t_d", "t_v", "t_ar", "R", "tau", "t_dc"])
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_what_is_no_time_is_refused(field: str, value: float) -> None:
    with pytest.raises(UsageError, match=field):
        Costs(**({"t_d": 1.0, "t_v": 1.0, "t_ar": 1.0} | {field: value}))


@given(sessions(), chances, depths, st.floats(1, 500))
def test_a_longer_round_trip_never_helps(costs: Costs, a: float, D: int, more: float) -> None:
    longer = costs.over(costs.R + more)
    for form in (single_session.stop_and_wait_ms, distance.pipe_ms, pipelines.picospec_ms):
        assert form(longer, a, D) >= form(costs, a, D)
    assert pipelines.streaming_ms(longer, a) > pipelines.streaming_ms(costs, a)
    assert pipelines.resident_tree_ms(longer, 7.5, a) > pipelines.resident_tree_ms(costs, 7.5, a)
    assert single_session.colocated_ms(longer, a, D) == single_session.colocated_ms(costs, a, D)
    assert single_session.plain_ms(longer) == costs.t_ar
    assert capacity.knee_rate(longer, a, D) < capacity.knee_rate(costs, a, D)


@given(sessions(), chances, depths)
def test_far_away_only_tokens_per_round_trip_count(costs: Costs, a: float, D: int) -> None:
    far = costs.over(FAR)
    tokens = acceptance.tokens_per_step(a, D)
    assert single_session.stop_and_wait_ms(far, a, D) == pytest.approx(FAR / tokens, rel=1e-4)
    assert distance.pipe_ms(far, a, D, 1.0) == pytest.approx(FAR / tokens, rel=1e-4)
    assert pipelines.picospec_ms(far, a, D) == pytest.approx(FAR / acceptance.tokens_without_bonus(a, D), rel=1e-4)
    assert pipelines.streaming_ms(far, a) == pytest.approx((1 - a) * FAR, rel=1e-3)


@given(sessions(), chances, depths)
def test_speedups_are_ratios_of_times(costs: Costs, a: float, D: int) -> None:
    turns = costs.t_ar / single_session.stop_and_wait_ms(costs, a, D)
    assert single_session.stop_and_wait_speedup(costs, a, D) == pytest.approx(turns)
    same = Costs(costs.t_d, costs.t_ar, costs.t_ar, t_dc=costs.t_dc)
    ratio = same.t_ar / single_session.colocated_ms(same, a, D)
    assert single_session.colocated_speedup(same, a, D) == pytest.approx(ratio)


@given(sessions(), chances, depths)
def test_a_link_costs_its_time_once_a_step(costs: Costs, a: float, D: int) -> None:
    one_drafter = Costs(costs.t_d, costs.t_v, costs.t_ar, costs.R, costs.tau)
    gap = single_session.stop_and_wait_ms(one_drafter, a, D) - single_session.colocated_ms(one_drafter, a, D)
    assert gap == pytest.approx(distance.distance_penalty_ms(one_drafter, a, D), abs=1e-6)
    assert distance.distance_penalty_ms(one_drafter, a, D) >= 0


@given(sessions(), chances, depths)
def test_stop_and_wait_wins_exactly_below_rtt_max(costs: Costs, a: float, D: int) -> None:
    bound = distance.rtt_max_ms(costs, a, D)
    assume(abs(costs.R + costs.tau - bound) > 1e-6)
    assert (single_session.stop_and_wait_ms(costs, a, D) < costs.t_ar) == (costs.R + costs.tau < bound)


@given(sessions(), chances, depths, st.floats(0, 50))
def test_the_necessary_bound_is_never_tighter_than_the_exact_one(costs: Costs, a: float, D: int, tx: float) -> None:
    same = Costs(costs.t_d, costs.t_ar, costs.t_ar)
    exact = distance.rtt_max_ms(same, a, D) - D * tx
    assert distance.rtt_necessary_ms(same, a, D, tx) >= exact - 1e-6
    assert distance.rtt_necessary_ms(same, 1.0, D) == math.inf
    assert distance.rtt_necessary_ms(Costs(t_d=10, t_v=90, t_ar=90), 0.6, 5, 2) == pytest.approx(1.5 * 90 - 5 * 12)


@given(sessions(), chances, depths, st.floats(0, 1))
def test_a_pipe_loses_to_one_machine_once_drafting_fits_the_trip(costs: Costs, a: float, D: int, waste: float) -> None:
    same = Costs(costs.t_d, costs.t_v, costs.t_ar, costs.R)
    assert distance.pipe_cannot_win(same, D) == (D * costs.t_d <= costs.R)
    if distance.pipe_cannot_win(same, D):
        assert distance.pipe_ms(same, a, D, waste) >= single_session.colocated_ms(same, a, D) * (1 - 1e-12)
    assert not distance.pipe_cannot_win(same.over(FAR, tau=0.1), D)


def test_pipe_waste_shows_where_drafting_is_the_bottleneck() -> None:
    costs = Costs(t_d=10, t_v=5, t_ar=25)
    assert distance.pipe_ms(costs, 0, 4, 0.5) == 60
    assert distance.pipe_ms(costs.over(55), 0, 4, 0.5) == 60
    assert distance.pipe_ms(costs.over(50, tau=20), 0, 4, 0.5) == 75


def test_transmission_flops_and_prices() -> None:
    assert distance.transmission_ms(5, 20, 50) == 2.0
    assert distance.flops_over_plain(1, 3, 0.2) == pytest.approx(0.9)
    assert distance.flops_over_plain(0.5, 3, 0.0) == pytest.approx(3 / 1.875)
    assert distance.verify_price(1, 3, 2, 5) == 11 / 4
    assert distance.verify_only_is_cheaper(1, 3, 2, 5, 2.76)
    assert not distance.verify_only_is_cheaper(1, 3, 2, 5, 2.75)


@given(sessions(), chances, depths)
def test_picospec_lies_between_its_two_cycles(costs: Costs, a: float, D: int) -> None:
    tokens = acceptance.tokens_without_bonus(a, D)
    hidden = max(D * costs.t_d, costs.C) / tokens
    assert (
        hidden * (1 - 1e-12) <= pipelines.picospec_ms(costs, a, D) <= (D * costs.t_d + costs.C) / tokens * (1 + 1e-12)
    )
    assert pipelines.picospec_ms(costs, 1.0, D) == pytest.approx(max(D * costs.t_d, costs.C) / D)


@given(sessions(), chances)
def test_streaming_beats_plain_exactly_below_its_break_even(costs: Costs, a: float) -> None:
    bound = pipelines.streaming_break_even_ms(costs, a)
    assume(abs(costs.R - bound) > 1e-6)
    assert (pipelines.streaming_ms(costs, a) < costs.t_ar) == (bound > costs.R)


def test_streaming_at_certainty() -> None:
    costs = Costs(t_d=5, t_v=25, t_ar=25, R=100)
    assert pipelines.streaming_ms(costs, 1) == 5
    assert pipelines.streaming_break_even_ms(costs, 1) == math.inf
    assert pipelines.streaming_break_even_ms(Costs(t_d=30, t_v=25, t_ar=25), 1) == -math.inf
    assert pipelines.window_knee(1) == math.inf
    assert (pipelines.window_knee(0.8), pipelines.useful_window(costs)) == (pytest.approx(10), 25)


@given(sessions(), chances)
def test_free_running_goes_from_streaming_to_plain(costs: Costs, a: float) -> None:
    near = costs.over(0, 0)
    assert pipelines.free_running_ceiling(near, a) == pytest.approx(1000 / pipelines.streaming_ms(near, a))
    assert pipelines.free_running_ceiling(costs.over(1e12), a) == pytest.approx(1000 / costs.t_ar, rel=1e-4)
    fastest, slowest = pipelines.free_running_bounds_ms(costs, a)
    assert fastest <= slowest == costs.t_ar
    if pipelines.streaming_ms(near, a) <= costs.t_ar:
        assert pipelines.free_running_ceiling(costs, a) >= (1 - 1e-12) * 1000 / pipelines.streaming_ms(costs, a)
        assert fastest == pytest.approx(1000 / pipelines.free_running_ceiling(costs, a))


def time_at(a: acceptance.Acceptance, t_d: float, C: float, D: int) -> float:
    return (D * t_d + C) / acceptance.tokens_per_step(a, D)


@given(by_depth, times, st.floats(0, 800))
def test_the_first_failure_is_the_best_place_to_stop(a: list[float], t_d: float, C: float) -> None:
    longest = 40
    stop = stopping.stopping_depth(a, t_d, C, longest)
    fastest = min(time_at(a, t_d, C, D) for D in range(longest + 1))
    assert time_at(a, t_d, C, stop) == pytest.approx(fastest, rel=1e-9, abs=1e-12)
    for k in range(min(stop + 1, longest)):
        assert stopping.next_draft_pays(acceptance.survivals(a, k + 1), t_d, C) == (k < stop)


@given(by_depth, times, st.floats(1, 800))
def test_the_rate_form_stops_at_the_same_time_per_token(a: list[float], t_d: float, C: float) -> None:
    fastest = time_at(a, t_d, C, stopping.stopping_depth(a, t_d, C, 40))
    depth = stopping.depth_at_rate(a, t_d, 1 / fastest, 40)
    assert time_at(a, t_d, C, depth) == pytest.approx(fastest, rel=1e-9)


def test_the_threshold_of_the_rate_form() -> None:
    assert not stopping.next_draft_pays_at_rate(0.2, 0.040, 5)
    assert stopping.next_draft_pays_at_rate(0.2001, 0.040, 5)


@given(chances, times, st.floats(0, 3000))
def test_the_closed_best_depth_is_the_best(a: float, t_d: float, C: float) -> None:
    depth = stopping.best_depth(a, t_d, C)
    fastest = time_at(a, t_d, C, stopping.stopping_depth(a, t_d, C, 3000))
    assert time_at(a, t_d, C, depth) == pytest.approx(fastest, rel=1e-9)


@given(chances, times, st.floats(0, 3000))
def test_the_balance_depth_solves_its_equation(a: float, t_d: float, C: float) -> None:
    depth = stopping.balance_depth(a, t_d, C)
    if depth:
        assert depth + 1 == pytest.approx(math.log(1 + (1 - a) * (depth + C / t_d)) / math.log(1 / a))
    else:
        assert not stopping.first_draft_pays(a, t_d, C)


@given(chances, times, st.floats(0, 800))
def test_conditions_for_no_draft_and_for_one(a: float, t_d: float, C: float) -> None:
    assume(abs(a * C - t_d) > 1e-9)
    assert stopping.first_draft_pays(a, t_d, C) == (time_at(a, t_d, C, 1) < time_at(a, t_d, C, 0))
    assume(abs(a * a * C - t_d * (1 + a - a * a)) > 1e-9)
    assert stopping.one_draft_is_best(a, t_d, C) == (stopping.stopping_depth(a, t_d, C) == 1)


def test_depth_grows_with_the_logarithm_of_the_wait() -> None:
    steps = [stopping.balance_depth(0.8, 5, 10.0 * 10**k) for k in range(3, 8)]
    grown = [after - before for before, after in pairwise(steps)]
    assert grown == pytest.approx([math.log(10) / math.log(1 / 0.8)] * 4, rel=0.01)


def test_no_depth_is_best_where_nothing_is_rejected() -> None:
    with pytest.raises(UsageError, match="no draft length is best"):
        stopping.best_depth(1, 5, 100)
    assert stopping.balance_depth(1, 5, 100) == math.inf
    assert stopping.stopping_depth(1, 5, 100, 30) == stopping.depth_at_rate(1, 5, 0.1, 30) == 30


@given(sessions(), chances)
def test_drafting_is_off_exactly_from_the_break_even_round_trip_on(costs: Costs, a: float) -> None:
    longest = 60
    off = stopping.drafting_is_off(costs, a, longest)
    bound = stopping.break_even_rtt_ms(costs, a, longest)
    # Without drafts the cloud answers each token at C; only where a verify is faster than a plain step can that win.
    bound = max(bound, costs.t_ar - costs.t_v - costs.tau)
    assume(abs(costs.R - bound) > 1e-6)
    assert off == (bound < costs.R)


@given(sessions(), chances, depths)
def test_capacity_is_verifier_time_per_token(costs: Costs, a: float, D: int) -> None:
    clients = capacity.capacity(costs, a, D)
    assert clients.plain == 1
    assert clients.distributed / clients.colocated == pytest.approx(capacity.distributed_over_colocated(costs, D))
    assert clients.colocated == pytest.approx(costs.t_ar / single_session.colocated_ms(costs, a, D))
    steps = capacity.fewest_steps_per_token(a, D)
    assert clients.distributed == pytest.approx(capacity.clients_over_plain(costs, steps))
    assert capacity.clients_over_plain(costs, 1) == pytest.approx(costs.t_ar / costs.t_v)


@given(sessions(), chances, depths)
def test_the_knee_is_the_rate_of_taking_turns(costs: Costs, a: float, D: int) -> None:
    turns = 1000 / single_session.stop_and_wait_ms(costs, a, D)
    assert capacity.knee_rate(costs, a, D) == pytest.approx(turns)
