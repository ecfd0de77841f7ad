"""The same scenario in virtual time and on the live stack."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from acespec.proto.errors import UsageError
from acespec.sim.line import Direction
from acespec.sim.link_file import read_link_file
from acespec.sim.live import check_live, edge_link, run_live, verifier_arguments
from acespec.sim.live_link import spec_as_toml
from acespec.sim.loss import GilbertElliott
from acespec.sim.outages import OnOff, Outage
from acespec.sim.presets import PRESETS
from acespec.sim.rate import MarkovRate, RateState, RateTrace
from acespec.sim.result_text import LIVE, is_live
from acespec.sim.spec import LinkSpec
from acespec.sim.world.result import Result, result_from
from acespec.sim.world.scenario import DrafterSpec, LinkChoice, LoadSpec, Scenario, StrategySpec, TargetSpec
from acespec.sim.world.strategies.registry import params_of
from acespec.sim.world.world import World, run

DIRECTIONS: tuple[Direction, ...] = ("up", "down")


def everything() -> LinkSpec:
    """A link that uses every field."""
    spec = LinkSpec(
        20.0,
        50.0,
        100.0,
        name='a "b" \\c',
        outages=(Outage(1, 2.5),),
        on_off=OnOff(30, 2),
        tcp_backoff=True,
    )
    markov = MarkovRate((RateState(50, 20), RateState(10, 5)))
    return spec.varied(
        rate_up=RateTrace(((0.0, 10.0), (1.0, 30.0)), 2.0), rate_down=markov, loss=GilbertElliott(0.01, 0.25, 0.9, 0.0)
    )


@pytest.mark.parametrize(
    "spec", [*(preset.spec for preset in PRESETS.values()), everything()], ids=lambda spec: spec.name
)
def test_a_link_survives_its_file(spec: LinkSpec, tmp_path: Path) -> None:
    path = tmp_path / "link.toml"
    path.write_text(spec_as_toml(spec), encoding="utf-8")
    assert read_link_file(path) == spec


def test_edges_have_the_links_of_the_world() -> None:
    scenario = Scenario(load=LoadSpec(edges=3), strategy=StrategySpec("plain"))
    assert [edge_link(scenario, n) for n in range(3)] == [place.spec for place in World(scenario).places]


def test_the_verifier_is_started_as_the_scenario_says() -> None:
    target = TargetSpec("theory-25ms", 1000, None, 3, "never", 12.5, 8, 40, 64)
    scenario = Scenario(target=target, strategy=StrategySpec("ours", {"free_run": "always"}))
    arguments = verifier_arguments(scenario, params_of(scenario.strategy), "127.0.0.1:5")
    said = dict(zip(arguments[2::2], arguments[3::2], strict=True))
    assert arguments[:2] == ["serve", "--insecure"]
    assert (said["--host"], said["--port"], said["--profile"], said["--vocab"]) == (
        "127.0.0.1",
        "5",
        "theory-25ms",
        "1000",
    )
    assert (said["--free-run"], said["--target-rate"], said["--background"]) == ("always", "12.5", "3")
    assert (said["--max-draft"], said["--max-rows"], said["--kv-memory"]) == ("8", "40", str(64 * 9 / 1024))


def test_what_exists_in_virtual_time_only() -> None:
    with pytest.raises(UsageError, match="at most 32"):
        check_live(Scenario(load=LoadSpec(edges=33)))
    with pytest.raises(UsageError, match="coloc exists in virtual time only: with --live choose plain or ours"):
        check_live(Scenario(strategy=StrategySpec("coloc")))
    with pytest.raises(UsageError, match="no strategy"):
        check_live(Scenario(strategy=StrategySpec("magic")))


def scenario(strategy: str) -> Scenario:
    """A few seconds over the project's link."""
    return Scenario(
        duration_s=30.0,
        link=LinkChoice("wan50"),
        target=TargetSpec(free_run="always"),
        drafter=DrafterSpec(acceptance="0.8"),
        load=LoadSpec(edges=1, turns=2, tokens=64, prompt_tokens=16),
        strategy=StrategySpec(strategy),
    )


def busy() -> bool:
    """Whether others use this machine so much that times say little."""
    return os.getloadavg()[0] > len(os.sched_getaffinity(0))


def ratios(live: Result, simulated: Result) -> tuple[float, float]:
    """Of tokens/s and of IP bytes per token."""
    bytes_live = live.up_bytes_per_token + live.down_bytes_per_token
    bytes_simulated = simulated.up_bytes_per_token + simulated.down_bytes_per_token
    return live.tokens_per_s.mean / simulated.tokens_per_s.mean, bytes_live / bytes_simulated


def test_a_live_run_says_the_same_text_and_is_marked() -> None:
    heard: list[float] = []
    short = replace(scenario("ours"), load=LoadSpec(edges=2, turns=1, tokens=24, prompt_tokens=8))
    live, simulated = run_live(short, heard.append), run(short)
    assert (live.digest, is_live(live), is_live(simulated)) == (LIVE, True, False)
    assert [edge.tokens for edge in live.edges] == [edge.tokens for edge in simulated.edges] == [24, 24]
    assert [edge.turns for edge in live.edges] == [1, 1]
    assert all(edge.traffic.up_bytes > edge.traffic.up_payload > 0 for edge in live.edges)
    assert live.verifier_s_per_token > 0
    assert 0.3 < live.steps_per_token <= 1.05
    assert heard == sorted(heard)
    assert result_from(live.as_json()) == live


@pytest.mark.slow
def test_a_run_ends_with_its_duration() -> None:
    endless = replace(scenario("plain"), duration_s=3.0, load=LoadSpec(tokens=100_000, prompt_tokens=8))
    live = run_live(endless)
    assert 3.0 <= live.virtual_s < 10.0
    [edge] = live.edges
    assert edge.turns == 0
    assert edge.tokens > 20
    assert 0.9 < edge.steps / edge.tokens < 1.2  # The turn that was cut off gave its account.


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("strategy", ["plain", "ours"])
def test_sim_and_live_agree(strategy: str) -> None:
    simulated = run(scenario(strategy))
    tries = [ratios(run_live(scenario(strategy)), simulated) for _ in range(3)]
    speed, traffic = max(tries, key=lambda pair: pair[0])
    assert 0.9 < traffic < 1.1
    assert 0.6 if busy() else 0.9 < speed < 1.1
