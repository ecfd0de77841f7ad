"""Every figure that our notes and the cited papers print from a closed form of time, to the printed digits.

A row of text is compared with the forms' values formatted alike, so a form that is off by one in D, or that counts the
bonus differently, fails in most cells.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from acespec.sim.theory.acceptance import pooled_acceptance, rates_of, survival
from acespec.sim.theory.branch_cache import Tail, branch_cache_ms, eta, geometric_fan_out, hit_probability
from acespec.sim.theory.capacity import fewest_steps_per_token, knee_rate
from acespec.sim.theory.costs import Costs, serialisation_ms, tokens_per_second
from acespec.sim.theory.distance import rtt_max_ms
from acespec.sim.theory.pipelines import (
    free_running_ceiling,
    picospec_ms,
    resident_tree_ms,
    streaming_break_even_ms,
    streaming_ms,
    tree_kbps,
)
from acespec.sim.theory.single_session import colocated_ms, plain_ms, stop_and_wait_ms
from acespec.sim.theory.stopping import best_depth, break_even_rtt_ms, fastest_depth

Form = Callable[[Costs, float, int], float]

RATES = (0.6, 0.8, 0.9)
RTTS = (10, 30, 60, 100, 200)
MACHINES = Costs(t_d=5, t_v=25, t_ar=25, t_dc=2)
BUDGET = 40
"""B of the branch cache in the table of strategies."""


def branch_cache(costs: Costs, a: float, D: int) -> tuple[float, float]:
    """(T, P_hit) as the table has it: one geometric law for k = 0 .. D, T_tree = 1.5 D t_d, b = 1, c = .5."""
    tail = Tail(b=1, c=0.5)
    fan_out = geometric_fan_out(BUDGET - D, eta(a, tail.b), D + 1)
    hit = hit_probability(a, fan_out, tail)
    return branch_cache_ms(costs, a, D, 1.5 * D * costs.t_d, hit), hit


def best(form: Form, costs: Costs, a: float) -> tuple[int, float]:
    return fastest_depth(lambda D: form(costs, a, D))


def best_branch_cache(costs: Costs, a: float) -> tuple[int, float]:
    return fastest_depth(lambda D: branch_cache(costs, a, D)[0], BUDGET - 1)


def shown(values: list[float], digits: int) -> str:
    return "/".join(f"{value:.{digits}f}" for value in values)


def test_plain_and_colocated_decoding_of_the_table() -> None:
    chosen = [best(colocated_ms, MACHINES, a) for a in RATES]
    assert tokens_per_second(plain_ms(MACHINES)) == 40.0
    assert [depth for depth, _ in chosen] == [3, 6, 11]
    assert shown([tokens_per_second(ms) for _, ms in chosen], 1) == "70.2/106.8/152.7"


@pytest.mark.parametrize(
    ("R", "stop_and_wait", "picospec", "acespec", "streaming"),
    [
        (10, "43.6/61.5/81.7", "41.9/64.9/98.0", "63.5/92.7/117.7", "52.6/83.3/117.6"),
        (30, "31.1/46.5/65.4", "30.1/47.8/74.4", "42.2/70.0/96.8", "37.0/62.5/95.2"),
        (60, "22.0/34.7/51.4", "21.3/35.2/56.0", "27.8/49.1/76.2", "25.6/45.5/74.1"),
        (100, "15.9/26.3/40.7", "15.6/26.4/43.1", "19.2/34.6/56.5", "18.2/33.3/57.1"),
        (200, "9.5/16.6/27.5", "9.4/16.6/28.2", "10.8/20.0/33.4", "10.5/20.0/36.4"),
    ],
)
def test_strategies_over_round_trips(R: int, stop_and_wait: str, picospec: str, acespec: str, streaming: str) -> None:
    costs = MACHINES.over(R)
    times: dict[str, list[float]] = {"stop": [], "pico": [], "ace": [], "stream": []}
    for a in RATES:
        times["stop"].append(best(stop_and_wait_ms, costs, a)[1])
        times["pico"].append(best(picospec_ms, costs, a)[1])
        times["ace"].append(best_branch_cache(costs, a)[1])
        times["stream"].append(streaming_ms(costs, a))
    rows = {name: shown([tokens_per_second(ms) for ms in column], 1) for name, column in times.items()}
    assert rows == {"stop": stop_and_wait, "pico": picospec, "ace": acespec, "stream": streaming}


def test_best_depths_of_the_table() -> None:
    links = [MACHINES.over(R) for R in RTTS]
    assert [best(stop_and_wait_ms, costs, 0.8)[0] for costs in links] == [5, 6, 7, 9, 11]
    assert [best(picospec_ms, costs, 0.8)[0] for costs in links] == [5, 6, 8, 9, 11]
    depths = [best_branch_cache(c, 0.8)[0] for c in links]
    assert depths == [5, 7, 11, 12, 13]
    hits = [branch_cache(c, 0.8, D)[1] for c, D in zip(links, depths, strict=True)]
    assert shown(hits, 2) == "0.91/0.87/0.82/0.81/0.78"


@pytest.mark.parametrize(
    ("kappa", "rates"), [(0.90, "91/77/63/50/33"), (0.94, "104/93/79/67/48"), (0.97, "117/109/100/89/70")]
)
def test_tree_at_the_verifier(kappa: float, rates: str) -> None:
    speeds = [tokens_per_second(resident_tree_ms(MACHINES.over(R), 7.5, kappa)) for R in RTTS]
    # 62.5 is printed rounded up.
    assert shown([speed + 1e-9 for speed in speeds], 0) == rates


def test_only_the_best_tree_beats_colocated_decoding_and_only_up_to_30_ms() -> None:
    rival = best(colocated_ms, MACHINES, 0.8)[1]
    assert [resident_tree_ms(MACHINES.over(R), 7.5, 0.97) < rival for R in RTTS] == [True, True, False, False, False]
    assert not any(streaming_ms(MACHINES.over(R), 0.8) < rival for R in RTTS)


def test_traffic_of_a_shipped_tree() -> None:
    assert [tree_kbps(80, nodes, 18) for nodes in (10, 30)] == [14.4, 43.2]


EVENTS = {10: (54.8, 77.9, 108.0), 30: (47.7, 65.4, 92.0), 60: (43.3, 56.0, 78.6), 100: (41.2, 48.7, 66.2)}
EVENTS[200] = (40.1, 42.4, 52.0)


def test_simulated_free_running_lies_at_79_to_91_percent_of_its_ceiling() -> None:
    shares = [
        speed / free_running_ceiling(MACHINES.over(R), a)
        for R, speeds in EVENTS.items()
        for a, speed in zip(RATES, speeds, strict=True)
    ]
    assert f"{min(shares):.2f} {max(shares):.2f}" == "0.79 0.91"


@pytest.mark.parametrize(
    ("t_ar", "cells"),
    [
        (100, "47 144 265 319"),
        (50, "-2 47 108 134"),
        (30, "-21 8 45 61"),
        (20, "-31 -11 13 24"),
    ],
)
def test_table_iii_of_speculation_at_a_distance(t_ar: float, cells: str) -> None:
    costs = Costs(t_d=10, t_v=t_ar, t_ar=t_ar)
    assert " ".join(f"{rtt_max_ms(costs, a, 5):.0f}" for a in (0.5, 0.7, 0.85, 0.9)) == cells


@pytest.mark.parametrize(
    ("a", "depths"), [(0.6, [2, 3, 4, 5, 7]), (0.8, [4, 6, 8, 11, 13]), (0.9, [7, 11, 14, 18, 23])]
)
def test_best_depth_over_the_wait(a: float, depths: list[int]) -> None:
    waits = (30, 60, 120, 220, 420)
    assert [best_depth(a, 5, C) for C in waits] == depths
    searched = [best(stop_and_wait_ms, Costs(t_d=5, t_v=C, t_ar=C), a)[0] for C in waits]
    assert searched == depths


@pytest.mark.parametrize(
    ("t_ar", "cells"),
    [
        (11, "2/4 3/9 6/19 17/49"),
        (18, "7/14 13/25 23/47 56/112"),
        (25, "14/25 24/42 44/75 104/175"),
        (40, "32/48 53/77 94/135 216/310"),
        (60, "58/78 94/123 164/215 377/490"),
        (100, "113/138 180/217 313/375 713/850"),
    ],
)
def test_break_even_round_trips(t_ar: float, cells: str) -> None:
    costs = Costs(t_d=5, t_v=t_ar, t_ar=t_ar)
    # Halves are printed rounded to even; 1e-9 of noise must not decide them.
    pairs = [
        (round(break_even_rtt_ms(costs, a), 9), round(streaming_break_even_ms(costs, a), 9))
        for a in (0.6, 0.7, 0.8, 0.9)
    ]
    assert " ".join(f"{turns:.0f}/{stream:.0f}" for turns, stream in pairs) == cells


def test_a_narrow_link_takes_acespec_off_its_plateau_at_25_kbps() -> None:
    costs = Costs(t_d=10, t_v=40, t_ar=72, R=47)
    taus = [serialisation_ms(94 + 40, 94 + 80, kbps) for kbps in (50, 25, 10)]
    assert shown(taus, 0) == "49/99/246"
    plateau = branch_cache_ms(costs, 0.8, 6, tree_ms=136, p_hit=1)
    narrow = [branch_cache_ms(costs.over(47, tau), 0.8, 6, tree_ms=136, p_hit=1) for tau in taus]
    assert shown([plateau / ms for ms in narrow], 2) == "1.00/0.73/0.41"


def test_measured_survivals_turn_into_rising_acceptance() -> None:
    printed = (0.754, 0.577, 0.447, 0.359)
    assert shown(list(rates_of(printed)), 3) == "0.754/0.765/0.775/0.803"
    assert f"{pooled_acceptance(printed):.3f}" == "0.534"
    assert survival(rates_of(printed), 4) == pytest.approx(0.359)


def test_published_speedups_as_rates() -> None:
    assert f"{6.86 * 3.52:.2f} {13.82 * 1.32:.1f}" == "24.15 18.2"


JUST_IN_TIME: dict[tuple[float, int], dict[int, float]] = {
    (0.8, 30): {30: 0.22, 20: 0.21, 12: 0.21, 8: 0.21},
    (0.8, 100): {30: 0.67, 20: 0.22, 12: 0.21, 8: 0.21},
    (0.8, 300): {30: 0.99, 20: 0.85, 12: 0.34, 8: 0.22},
    (0.65, 100): {30: 0.96, 20: 0.74, 12: 0.45, 8: 0.40},
    (0.9, 100): {30: 0.17, 20: 0.15, 12: 0.14, 8: 0.14},
}
"""Simulated verify steps per token by (a, RTT) and target rate, t_v = 25; 79 B + 20 bits a draft at 50 Kbps."""


def test_the_knee_parts_cheap_target_rates_from_dear_ones() -> None:
    for (a, R), steps_at in JUST_IN_TIME.items():
        knees = []
        for D in (4, 8, 12):
            tau = serialisation_ms(79 + 20 * D / 8, 79, 50)
            knees.append(knee_rate(Costs(t_d=5, t_v=25, t_ar=25, R=R, tau=tau), a, D))
        ideal = fewest_steps_per_token(a, 8)
        for rate, steps in steps_at.items():
            assert (rate < max(knees)) == (steps < 1.4 * ideal), (a, R, rate, max(knees))


def test_ideal_steps_per_token() -> None:
    assert shown([fewest_steps_per_token(a, 8) for a in (0.8, 0.65, 0.9)], 2) == "0.23/0.36/0.16"
    assert fewest_steps_per_token(0.65, 8) == pytest.approx((1 - 0.65) / (1 - 0.65**9))
