"""The world: the same seed gives the same run everywhere, and another seed another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from acespec.proto.errors import UsageError
from acespec.sim.world.result import Result, load_result
from acespec.sim.world.scenario import (
    DrafterSpec,
    LinkChoice,
    LoadSpec,
    Scenario,
    StrategySpec,
    TargetSpec,
    scenario_from,
)
from acespec.sim.world.world import World, run

CROWD = Scenario(
    duration_s=6.0,
    link=LinkChoice(preset="gprs"),
    target=TargetSpec(profile="h100-8b"),
    drafter=DrafterSpec(token_ms=5.0),
    load=LoadSpec(edges=5, tokens=40, turns=2, think_s=0.3, start_spread_s=1.0),
)
STRATEGIES = ("plain", "ours", "coloc", "stop-and-wait", "picospec", "acespec")
DIGESTS = """
import json, sys
from acespec.sim.world.scenario import StrategySpec, scenario_from
from acespec.sim.world.world import run
from dataclasses import replace
scenario = scenario_from(json.loads(sys.argv[1]))
print([run(replace(scenario, strategy=StrategySpec(name))).digest for name in sys.argv[2:]])
"""


def outcome(result: Result) -> Result:
    """All but what this machine took for it."""
    return replace(result, wall_s=0.0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_seed_gives_the_same_result_and_another_one_another(strategy: str) -> None:
    scenario = replace(CROWD, strategy=StrategySpec(strategy))
    first = run(scenario)
    assert outcome(run(scenario)) == outcome(first)
    assert first.tokens > 0
    assert run(replace(scenario, seed=2)).digest != first.digest


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_the_digest_does_not_depend_on_the_process(hash_seed: str) -> None:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", DIGESTS, json.dumps(CROWD.as_json()), "ours", "acespec"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    here = [run(replace(CROWD, strategy=StrategySpec(name))).digest for name in ("ours", "acespec")]
    assert done.stdout.strip() == str(here)


def test_the_digest_of_a_known_run_is_known() -> None:
    """It may change only where the world, the link or the protocol do: then say so."""
    scenario = replace(CROWD, load=LoadSpec(edges=2, tokens=20))
    assert run(scenario).digest == "553500c898d7c242bd1e819f0e3d4659"


def test_an_edge_does_not_change_because_there_are_more() -> None:
    """Links and dice belong to an edge and a purpose; only the verifier is shared."""
    few, many = (World(replace(CROWD, load=LoadSpec(edges=n))).places for n in (2, 9))
    for one, other in zip(few, many, strict=False):
        assert one.spec == other.spec
        assert one.dice("start").random() == other.dice("start").random()
    assert len({place.spec.seed for place in many}) == 9
    assert many[0].dice("a").random() != many[0].dice("b").random()


def test_using_one_die_moves_no_other() -> None:
    place = World(CROWD).places[0]
    fresh = place.dice("coin").random()
    place.dice("other").random()
    assert place.dice("coin").random() == fresh


def test_a_run_ends_when_every_turn_is_over_or_time_is() -> None:
    done = run(replace(CROWD, duration_s=300.0))
    assert all(edge.turns == 2 and edge.tokens == 80 for edge in done.edges)
    assert done.virtual_s < 60.0
    cut = run(replace(CROWD, duration_s=2.5))
    assert cut.virtual_s == 2.5
    assert cut.tokens < done.tokens


def test_progress_rises_to_one() -> None:
    shares: list[float] = []
    run(replace(CROWD, duration_s=30.0), shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_result_survives_the_way_through_a_file(tmp_path: Path) -> None:
    result = run(replace(CROWD, strategy=StrategySpec("ours", {"draft": "4", "free_run": "never"})))
    result.save(tmp_path / "result.json")
    assert load_result(tmp_path / "result.json") == result
    (tmp_path / "other.json").write_text('{"tokens": 1}')
    with pytest.raises(UsageError, match="no result"):
        load_result(tmp_path / "other.json")


def test_figures_fit_each_other() -> None:
    result = run(replace(CROWD, strategy=StrategySpec("ours"), duration_s=300.0))
    edges = result.edges
    assert result.tokens == sum(edge.tokens for edge in edges)
    assert all(edge.accepted <= edge.verified <= edge.drafted for edge in edges)
    # Every token was a step's own sample or an accepted draft; a turn's first comes from its prompt's last chunk.
    assert all(edge.tokens == edge.steps + edge.accepted + edge.turns for edge in edges)
    assert all(edge.traffic.up_bytes > edge.traffic.up_payload > 0 for edge in edges)
    assert result.utilisation <= 1.0


def test_recorded_accuracy_and_its_text_are_used_by_all(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps({"ids": list(range(300, 340)), "ranks": [0] * 40}) + "\n")
    scenario = replace(CROWD, drafter=DrafterSpec(token_ms=5.0, acceptance=str(trace)), load=LoadSpec(tokens=40))
    result = run(replace(scenario, strategy=StrategySpec("ours", {"free_run": "never", "target_rate": 0})))
    assert result.tokens == 40
    assert result.edges[0].accepted == result.edges[0].verified


# -- scenarios -------------------------------------------------------------------------------------------------------


def test_a_scenario_survives_the_way_through_json() -> None:
    assert scenario_from(json.loads(json.dumps(CROWD.as_json()))) == CROWD
    assert scenario_from({}) == Scenario()


def test_whole_numbers_serve_as_fractions() -> None:
    assert scenario_from({"duration_s": 5, "drafter": {"token_ms": 3}}).drafter.token_s == 0.003


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"colour": 1}, "no colour"),
        ({"load": {"edge": 1}}, "no load edge"),
        ({"load": {"edges": 1.5}}, "load edges is 1.5"),
        ({"load": {"edges": True}}, "load edges is True"),
        ({"load": {"edges": 0}}, "load edges is 0"),
        ({"load": 3}, "load is 3"),
        ({"target": {"free_run": "often"}}, "always, idle or never"),
        ({"target": {"max_rows": "all"}}, "target max_rows is 'all'"),
        ({"duration_s": 0}, "duration_s"),
        ({"duration_s": float("nan")}, "duration_s"),
        ({"strategy": {"params": {"draft": [1]}}}, "strategy params draft"),
        ({"link": {"overrides": 3}}, "link overrides"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(table: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        scenario_from(table)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"link": LinkChoice(preset="avian")}, "avian"),
        ({"link": LinkChoice(overrides={"colour": 1})}, "colour"),
        ({"target": TargetSpec(profile="abacus")}, "abacus"),
        ({"drafter": DrafterSpec(profile="monkey")}, "monkey"),
        ({"drafter": DrafterSpec(kind="clever")}, "clever"),
        ({"drafter": DrafterSpec(acceptance="often")}, "often"),
        ({"strategy": StrategySpec("hope")}, "hope"),
        ({"strategy": StrategySpec("ours", {"hope": 1})}, "hope"),
        ({"strategy": StrategySpec("ours", {"target_rate": "fast"})}, "target_rate"),
        ({"strategy": StrategySpec("ours", {"free_run": "often"})}, "often"),
        ({"strategy": StrategySpec("ours", {"draft": "some"})}, "some"),
    ],
)
def test_what_is_not_there_is_refused_before_time_begins(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        World(replace(CROWD, **changes))  # type: ignore[arg-type] # each field by its own name


def test_files_beside_a_scenario_are_found(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("rate_up_kbps = 10\nrate_down_kbps = 20\ndelay_ms = 5\n")
    found = scenario_from({"link": {"file": "mine.toml"}}, tmp_path)
    assert found.link.spec().rate_down_kbps == 20
    assert found.target.profile == "h100-70b-fp8"


def test_the_config_hash_knows_what_matters() -> None:
    assert replace(CROWD, name="other").config_hash() == CROWD.config_hash()
    assert replace(CROWD, seed=9).config_hash() != CROWD.config_hash()
    assert scenario_from(CROWD.as_json()).config_hash() == CROWD.config_hash()
