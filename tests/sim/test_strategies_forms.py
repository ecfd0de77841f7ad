"""Each baseline against its closed form, where nothing is in its way: forms 1 to 5 of the theory.

The printed table is reached within 3 % by short runs; what theory calls best integer D is what `best` drafts.
"""

from __future__ import annotations

import pytest

from acespec.sim.theory.branch_cache import Tail, branch_cache_ms, eta, geometric_fan_out, hit_probability
from acespec.sim.theory.costs import Costs, tokens_per_second
from acespec.sim.theory.pipelines import picospec_ms
from acespec.sim.theory.single_session import colocated_ms, plain_ms, stop_and_wait_ms
from acespec.sim.world.world import run

from .strategy_lab import draft_length, scene, speed

CLOSE = 0.03
MACHINES = Costs(t_d=5, t_v=25, t_ar=25, t_dc=2)
RATES = (0.6, 0.8, 0.9)
COLOCATED = (70.2, 106.8, 152.7)
PRINTED = {
    "stop-and-wait": {
        10: (43.6, 61.5, 81.7),
        30: (31.1, 46.5, 65.4),
        60: (22.0, 34.7, 51.4),
        100: (15.9, 26.3, 40.7),
        200: (9.5, 16.6, 27.5),
    },
    "picospec": {
        10: (41.9, 64.9, 98.0),
        30: (30.1, 47.8, 74.4),
        60: (21.3, 35.2, 56.0),
        100: (15.6, 26.4, 43.1),
        200: (9.4, 16.6, 28.2),
    },
    "acespec": {
        10: (63.5, 92.7, 117.7),
        30: (42.2, 70.0, 96.8),
        60: (27.8, 49.1, 76.2),
        100: (19.2, 34.6, 56.5),
        200: (10.8, 20.0, 33.4),
    },
}
"""tokens/s at the best D by RTT, for `RATES`: the table of section 4 of the theory."""
DEPTHS = {
    "stop-and-wait": {10: 5, 30: 6, 60: 7, 100: 9, 200: 11},
    "picospec": {10: 5, 30: 6, 60: 8, 100: 9, 200: 11},
    "acespec": {10: 5, 30: 7, 60: 11, 100: 12, 200: 13},
}
"""Best D at a = .8."""
LAW: dict[str, dict[str, str]] = {"stop-and-wait": {}, "picospec": {}, "acespec": {"law": "bonus"}}
"""The table spreads branches over k = 0 .. D in one ratio."""
CELLS = [(10, 0.8), (60, 0.9), (100, 0.6), (200, 0.8)]


@pytest.mark.parametrize("R", [10, 200])
def test_plain_decoding_pays_the_round_trip_once_a_request(R: int) -> None:
    result = run(scene("plain", R=R, a=0.8, tokens=300, free_run="always"))
    assert result.tokens_per_s.mean == pytest.approx(tokens_per_second(plain_ms(MACHINES)), rel=CLOSE)
    assert result.first_token.mean * 1000 > R


def test_colocated_decoding_reaches_the_printed_rates_at_any_round_trip() -> None:
    for a, printed in zip(RATES, COLOCATED, strict=True):
        assert speed(scene("coloc", R=10, a=a)) == pytest.approx(printed, rel=CLOSE)
    assert speed(scene("coloc", R=300, a=0.9)) == pytest.approx(speed(scene("coloc", R=10, a=0.9)), rel=0.001)


def test_colocated_decoding_drafts_what_it_is_told() -> None:
    for D in (2, 12):
        result = run(scene("coloc", R=30, a=0.8, draft=D))
        expected = tokens_per_second(colocated_ms(MACHINES, 0.8, D))
        assert result.tokens_per_s.mean == pytest.approx(expected, rel=CLOSE)
        assert result.edges[0].drafted == D * result.edges[0].steps


@pytest.mark.parametrize("strategy", PRINTED)
def test_printed_rates_at_the_best_length(strategy: str) -> None:
    for R, a in CELLS:
        printed = PRINTED[strategy][R][RATES.index(a)]
        assert speed(scene(strategy, R=R, a=a, **LAW[strategy])) == pytest.approx(printed, rel=CLOSE)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strategy", PRINTED)
def test_printed_rates_in_full(strategy: str) -> None:
    for R, printed in PRINTED[strategy].items():
        rates = [speed(scene(strategy, R=R, a=a, tokens=20_000, **LAW[strategy])) for a in RATES]
        assert rates == pytest.approx(printed, rel=CLOSE)


@pytest.mark.parametrize("strategy", PRINTED)
def test_best_lengths_follow_the_round_trip(strategy: str) -> None:
    for R, depth in DEPTHS[strategy].items():
        assert draft_length(run(scene(strategy, R=R, a=0.8, tokens=60, **LAW[strategy]))) == depth


def test_fixed_lengths_of_stop_and_wait() -> None:
    for D, R in ((1, 0), (3, 40), (12, 120)):
        expected = tokens_per_second(stop_and_wait_ms(MACHINES.over(R), 0.8, D))
        assert speed(scene("stop-and-wait", R=R, a=0.8, draft=D)) == pytest.approx(expected, rel=CLOSE)


def test_fixed_lengths_of_picospec_on_either_side_of_its_balance() -> None:
    """Drafting hides behind the wait (D t_d < C) or the wait behind drafting."""
    for D, R in ((4, 60), (10, 10)):
        expected = tokens_per_second(picospec_ms(MACHINES.over(R), 0.9, D))
        assert speed(scene("picospec", R=R, a=0.9, draft=D)) == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize(("D", "R"), [(4, 60), (12, 30)])
def test_fixed_lengths_of_acespec_on_either_side_of_its_balance(D: int, R: int) -> None:
    tail = Tail(b=1, c=0.5)
    fan_out = geometric_fan_out(40 - D, eta(0.8, tail.b), D + 1)
    hit = hit_probability(0.8, fan_out, tail)
    expected = tokens_per_second(branch_cache_ms(MACHINES.over(R), 0.8, D, 1.5 * D * 5, hit))
    assert speed(scene("acespec", R=R, a=0.8, law="bonus", draft=D)) == pytest.approx(expected, rel=CLOSE)


def test_acceptance_that_falls_with_depth() -> None:
    costs = MACHINES.over(40)
    expected = tokens_per_second(stop_and_wait_ms(costs, (0.9, 0.5, 0.1), 3))
    rate = speed(scene("stop-and-wait", R=40, a="0.9,0.5,0.1", draft=3))
    assert rate == pytest.approx(expected, rel=CLOSE)
