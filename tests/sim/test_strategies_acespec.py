"""AceSpec's branch cache in the world: its figures by rate, fan-out law and budget.

The paper leaves RTT, D, B and the time of a tree unstated. Assumed for the sweep over rates: Qwen 0.6B/32B with t_v =
72 ms (plain decoding runs there at 13.9 tokens/s), RTT 15 ms, D = 6, B = 40, a = .8, b = 1, c = .5, t_d = 15.1 ms, so
that a tree takes 1.5 D t_d = 136 ms and a round 87 ms without serialisation. Messages cost what they do in this world.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from acespec.edge.drafters.replay_accuracy import RecordedAccuracy
from acespec.proto.errors import UsageError
from acespec.sim.theory.branch_cache import Tail, branch_cache_ms, hit_probability
from acespec.sim.theory.costs import Costs, serialisation_ms
from acespec.sim.world.result import Result
from acespec.sim.world.scenario import Scenario
from acespec.sim.world.strategies.acespec import AceSpec
from acespec.sim.world.strategies.branch_tree import LAWS
from acespec.sim.world.world import World, run

from .strategy_lab import flat_target, scene, speed

D = 6
TREE_MS = 136.0
PLATEAU_KBPS = (50_000, 20_000, 1000, 100, 50)
CHAIN_BYTES, VERDICT_BYTES = 79 + 6 + 48, 79 + 7 + 80
RATES = (0.6, 0.8, 0.9)


def hit_rate(scenario: Scenario) -> float:
    world = World(scenario)
    world.run()
    strategy = world._strategy
    assert isinstance(strategy, AceSpec)
    return strategy.hits / strategy.rounds


def by_law(law: str, a: float = 0.8, **params: int) -> float:
    return hit_rate(scene("acespec", R=60, a=a, tokens=3000, draft=D, law=law, **params))


def test_plateau_down_to_50_kbps_and_fall_at_25_and_10(tmp_path: Path) -> None:
    target = flat_target(tmp_path, 72)

    def at(kbps: float) -> Result:
        return run(scene("acespec", R=15, a=0.8, t_d=TREE_MS / 9, tokens=4000, kbps=kbps, target=target, draft=D))

    def form(kbps: float) -> float:
        costs = Costs(t_d=TREE_MS / 9, t_v=72, t_ar=72, R=15, tau=serialisation_ms(CHAIN_BYTES, VERDICT_BYTES, kbps))
        hit = hit_probability(0.8, LAWS["geometric"](40, D, 0.8, 1), Tail())
        return 1000 / branch_cache_ms(costs, 0.8, D, TREE_MS, hit)

    top = at(100_000).tokens_per_s.mean
    assert top == pytest.approx(form(100_000), rel=0.03)
    assert [at(kbps).tokens_per_s.mean for kbps in PLATEAU_KBPS] == pytest.approx([top] * len(PLATEAU_KBPS), rel=0.01)
    for kbps, share in ((25, 0.73), (10, 0.41)):
        rate = at(kbps).tokens_per_s.mean
        assert rate == pytest.approx(form(kbps), rel=0.03)
        # Theory's shares are for envelopes of 94 bytes, TLS included; here they are 79.
        assert rate / top == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize("law", LAWS)
def test_hits_are_as_frequent_as_theory_says(law: str) -> None:
    assert by_law(law) == pytest.approx(hit_probability(0.8, LAWS[law](40, D, 0.8, 1), Tail()), abs=0.025)


def test_geometric_beats_uniform_beats_single() -> None:
    """At a = .6 and B = 20 by more than chance; in theory at every acceptance but by less."""
    order = ("best", "geometric", "uniform", "one", "single")
    for a in RATES:
        exact = [hit_probability(a, LAWS[law](40, D, a, 1), Tail()) for law in order]
        assert exact == sorted(exact, reverse=True)
    hits = [by_law(law, 0.6, budget=20) for law in order[1:]]
    assert hits == sorted(hits, reverse=True)


def test_what_a_miss_costs_shows_in_the_rate() -> None:
    rates = [speed(scene("acespec", R=60, a=0.8, tokens=2000, draft=D, law=law)) for law in ("best", "one", "single")]
    assert rates == sorted(rates, reverse=True)
    waits = speed(scene("stop-and-wait", R=60, a=0.8, tokens=2000, draft=D))
    assert waits < rates[-1]


def test_returns_in_the_budget_flatten() -> None:
    hits = [by_law("geometric", budget=budget) for budget in (20, 40, 60, 80)]
    gains = [after - before for before, after in pairwise(hits)]
    assert all(gain > 0 for gain in gains)
    assert gains[0] > 2 * gains[1] > 2 * gains[2]


def test_a_tree_that_outlasts_the_wait_loses() -> None:
    """1 ms a branch: beyond B = 46, T_tree exceeds C = 85 ms, and what is caught no longer pays for it."""

    def at(budget: int, adapt: bool) -> float:
        params = {"draft": D, "budget": budget, "branch_ms": 1.0, "adapt": adapt}
        return speed(scene("acespec", R=60, a=0.8, tokens=1000, **params))

    fixed = {budget: at(budget, False) for budget in (20, 46, 80, 160)}
    assert fixed[20] < fixed[46] > fixed[80] > fixed[160]
    assert fixed[160] < 0.5 * fixed[46]
    # Its own rule B* = min(B_max, floor(T_tree^-1(R + t_v))) keeps it there.
    assert at(160, True) == pytest.approx(fixed[46], rel=0.005)


def test_a_budget_below_the_chain_leaves_stop_and_wait() -> None:
    params = {"draft": D, "budget": 40, "tree_factor": 10.0, "adapt": True}
    trees = speed(scene("acespec", R=20, a=0.8, tokens=1000, **params))
    assert trees == pytest.approx(speed(scene("stop-and-wait", R=20, a=0.8, tokens=1000, draft=D)), rel=0.001)


def test_a_trace_with_ranks_decides_by_them(tmp_path: Path) -> None:
    """Of ten tokens seven are the drafter's first guess, two its second, one its hundredth; there is F_0 = 1."""
    trace = tmp_path / "trace.jsonl"
    ranks = [0, 0, 0, 1, 0, 0, 1, 0, 99, 0] * 40
    trace.write_text(f'{{"ids": {[300] * len(ranks)}, "ranks": {ranks}}}\n')
    scenario = scene("acespec", R=60, a=str(trace), tokens=len(ranks), draft=1, budget=2, law="geometric")
    world = World(scenario)
    assert isinstance(world.places[0].accuracy, RecordedAccuracy)
    hits = expected_hits(ranks[1:])  # The first token comes with the prompt.
    assert hit_rate(scenario) == pytest.approx(hits)


def expected_hits(ranks: list[int]) -> float:
    at, found = 0, []
    while at + 2 < len(ranks):
        kept = ranks[at] == 0
        at += 2 if kept else 1
        # After a kept draft the chain must go on right; after a rejection one alternative stands by.
        found.append(ranks[at - 1] <= (0 if kept else 1))
    return sum(found) / len(found)


def test_laws_and_lengths_that_are_not_there() -> None:
    with pytest.raises(UsageError, match=r"law is 'cubic': it must be one of geometric, uniform"):
        World(scene("acespec", R=10, a=0.8, law="cubic"))
    with pytest.raises(UsageError, match="draft is 65: it must lie between 1 and 64"):
        World(scene("acespec", R=10, a=0.8, draft=65))
    with pytest.raises(UsageError, match="draft is 'some': it must be best or a whole number"):
        World(scene("picospec", R=10, a=0.8, draft="some"))
