"""Deep streaming: the printed figures of the event model with and without free running, and the forms above them."""

from __future__ import annotations

import pytest

from acespec.sim.theory.costs import Costs
from acespec.sim.theory.pipelines import free_running_ceiling, streaming_ms
from acespec.sim.world.result import Result
from acespec.sim.world.world import run

from .strategy_lab import scene

CLOSE = 0.03
MACHINES = Costs(t_d=5, t_v=25, t_ar=25)
RATES = (0.6, 0.8, 0.9)
EVENTS = {
    10: (49.8, 75.6, 107.1),
    30: (35.6, 58.0, 87.9),
    60: (25.1, 43.7, 70.7),
    100: (17.9, 32.3, 54.9),
    200: (10.4, 19.6, 35.2),
}
FREE = {
    10: (54.8, 77.9, 108.0),
    30: (47.7, 65.4, 92.0),
    60: (43.3, 56.0, 78.6),
    100: (41.2, 48.7, 66.2),
    200: (40.1, 42.4, 52.0),
}
"""tokens/s by RTT, for `RATES`: the table of section 4 of the theory."""
STEPS = {10: (0.41, 0.51), 30: (0.41, 0.61), 60: (0.39, 0.71), 100: (0.39, 0.82), 200: (0.39, 0.94)}
"""Verifier steps per token at a = .8, without and with free running."""


def stream(R: float, a: float, tokens: int, free: bool) -> Result:
    return run(scene("streaming", R=R, a=a, tokens=tokens, free_run=free))


def check(result: Result, R: float, a: float, printed: float, free: bool) -> None:
    costs = MACHINES.over(R)
    ceiling = free_running_ceiling(costs, a) if free else 1000 / streaming_ms(costs, a)
    assert result.tokens_per_s.mean == pytest.approx(printed, rel=CLOSE)
    assert result.tokens_per_s.mean < ceiling
    if free:
        assert result.tokens_per_s.mean > 1000 / MACHINES.t_ar - 0.1
    if a == 0.8:
        assert result.steps_per_token == pytest.approx(STEPS[int(R)][free], abs=0.015)


@pytest.mark.parametrize(("R", "a"), [(10, 0.8), (60, 0.9)])
def test_printed_events_in_short(R: int, a: float) -> None:
    at = RATES.index(a)
    check(stream(R, a, 4000, False), R, a, EVENTS[R][at], False)
    check(stream(R, a, 4000, True), R, a, FREE[R][at], True)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("R", EVENTS)
def test_printed_events_in_full(R: int, free: bool) -> None:
    for a, printed in zip(RATES, (FREE if free else EVENTS)[R], strict=True):
        check(stream(R, a, 20_000, free), R, a, printed, free)


def test_nothing_is_ever_wrong() -> None:
    """The drafter is the bottleneck: one token every t_d, and the bonus of each pass merely overtakes a draft."""
    result = stream(20, 1.0, 2000, False)
    assert result.tokens_per_s.mean == pytest.approx(200, rel=0.01)
    assert result.edges[0].accepted == result.edges[0].verified


def test_nothing_is_ever_right() -> None:
    """Without free running a token costs a whole round, with it none."""
    costs = MACHINES.over(100)
    assert stream(100, 0.0, 100, False).tokens_per_s.mean == pytest.approx(1000 / (costs.t_d + costs.C), rel=0.01)
    assert stream(100, 0.0, 400, True).tokens_per_s.mean == pytest.approx(40, rel=0.01)


def test_a_pass_takes_so_many_drafts_at_most() -> None:
    result = run(scene("streaming", R=10, a=1.0, tokens=1000, most=2))
    assert result.tokens_per_s.mean == pytest.approx(3 / 0.025, rel=0.01)
    assert result.acceptance_length == pytest.approx(2, abs=0.05)


def test_turns_follow_one_another() -> None:
    for free in (False, True):
        result = run(scene("streaming", R=30, a=0.8, tokens=50, turns=4, edges=3, free_run=free))
        assert [(edge.turns, edge.tokens) for edge in result.edges] == [(4, 200)] * 3
