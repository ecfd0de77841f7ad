"""`acespec-sim run`: scenario files, single keys on top of them, and what is printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from acespec.proto.errors import UsageError
from acespec.sim.figures import FIGURES, find_figure, shown
from acespec.sim.result_text import comparison_text, ratio_text
from acespec.sim.run_command import RunOptions, run_command
from acespec.sim.scenario_file import assign, parse_setting, read_scenario
from acespec.sim.world.result import load_result, result_from

EXAMPLES = Path(__file__).parents[2] / "scenarios"
SHORT = """
duration_s = 5
[link]
kbps = 20
rtt_ms = 60
overrides = { jitter_ms = 0 }
[load]
tokens = 24
prompt_tokens = 4
[strategy]
name = "plain"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "short.toml"
    path.write_text(SHORT)
    return path


def test_short_forms_become_overrides(scenario: Path) -> None:
    read = read_scenario(scenario)
    spec = read.link.spec()
    assert read.name == "short"
    assert (spec.rate_up_kbps, spec.rate_down_kbps, spec.delay_ms, spec.jitter_ms) == (20, 20, 30, 0)


def test_settings_lie_on_top_of_the_file(scenario: Path) -> None:
    settings = ["link.rtt_ms=80", "drafter.acceptance=0.9", "strategy.name=ours", "strategy.params.draft=4", "seed=7"]
    read = read_scenario(scenario, settings)
    assert read.link.spec().delay_ms == 40
    assert read.link.spec().rate_up_kbps == 20
    assert read.drafter.acceptance == "0.9"  # A number where the scenario has text.
    assert (read.strategy.name, read.strategy.params, read.seed) == ("ours", {"draft": 4}, 7)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("load.edges=1.5", "load edges is 1.5"),
        ("speed=3", "scenario has no speed"),
        ("link.kbps=fast", "link kbps is 'fast'"),
        ("seed", "write KEY=VALUE"),
        ("seed.x=1", "seed is no table"),
    ],
)
def test_settings_that_make_no_sense(scenario: Path, setting: str, says: str) -> None:
    scenario.write_text("seed = 1\n" + SHORT)
    with pytest.raises(UsageError, match=says):
        read_scenario(scenario, [setting])


def test_a_fault_names_the_file_and_the_settings(scenario: Path) -> None:
    with pytest.raises(UsageError, match=r"short\.toml with load\.edges=0: scenario load edges is 0"):
        read_scenario(scenario, ["load.edges=0"])
    with pytest.raises(UsageError, match=r"none\.toml: cannot be read"):
        read_scenario(scenario.with_name("none.toml"))
    scenario.write_text("[link")
    with pytest.raises(UsageError, match="not TOML"):
        read_scenario(scenario)


def test_values_are_toml_or_bare_words() -> None:
    assert parse_setting("a=1") == ("a", 1)
    assert parse_setting("a=[1, 2]") == ("a", [1, 2])
    assert parse_setting('a="1"') == ("a", "1")
    assert parse_setting("link.preset=gprs") == ("link.preset", "gprs")
    assert parse_setting("a=b=c") == ("a", "b=c")


def test_a_section_is_replaced_as_a_whole() -> None:
    table: dict[str, object] = {"strategy": {"name": "ours", "params": {"draft": "4"}}}
    assign(table, "strategy", {"name": "plain"})
    assert table == {"strategy": {"name": "plain"}}


def test_a_run_prints_all_figures_and_saves_them(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    text = run_command(RunOptions(scenario, out=out))
    result = load_result(out)
    assert all(figure.label in text for figure in FIGURES.values())
    assert result.digest in text
    assert result.tokens == 24
    assert "short: plain, 1 edge, seed 1: 24 tokens, 1 of 1 turns ended" in text
    again = json.loads(run_command(RunOptions(scenario, json=True)))
    assert result_from(again).digest == result.digest
    drafted = [
        json.loads(run_command(RunOptions(scenario, json=True, settings=("strategy.name=ours", f"seed={seed}"))))
        for seed in (1, 1, 2)
    ]
    assert drafted[0]["digest"] == drafted[1]["digest"] != drafted[2]["digest"]


def test_a_comparison_shows_both_and_the_ratio(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    run_command(RunOptions(scenario, out=out))
    result = load_result(out)
    line = next(x for x in comparison_text(result, result).splitlines() if x.startswith("IP bytes up"))
    assert line.split()[-1] == "1.000"
    assert ratio_text(3.0, 2.0).strip() == "1.500"
    assert ratio_text(3.0, 0.0).strip() == "-"


def test_what_cannot_be_asked_for(scenario: Path) -> None:
    with pytest.raises(UsageError, match="give --live with it"):
        run_command(RunOptions(scenario, compare=True))
    with pytest.raises(UsageError, match="no strategy 'magic'"):
        run_command(RunOptions(scenario, settings=("strategy.name=magic",)))
    scenario.write_text("[sweep]\n")
    with pytest.raises(UsageError, match="acespec-sim sweep runs it"):
        run_command(RunOptions(scenario))
    with pytest.raises(UsageError, match="no figure 'speed'"):
        find_figure("speed")


def test_numbers_show_what_they_tell() -> None:
    assert [shown(x) for x in (0, 12345.6, 42.34, 4.234, 0.04234, -3.5)] == [
        "0",
        "12346",
        "42.3",
        "4.23",
        "0.042",
        "-3.50",
    ]


def test_the_command_line(scenario: Path) -> None:
    command = [sys.executable, "-c", "from acespec.sim.cli import main; main()", "run", str(scenario)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tokens"] == 24
    bad = subprocess.run([*command, "--set", "load.edges=0"], capture_output=True, text=True, timeout=50, check=False)
    assert bad.returncode == 2
    assert bad.stderr.startswith("error: ")
    assert bad.stderr.count("\n") == 1


def test_the_example_scenario_is_well_formed() -> None:
    scenario = read_scenario(EXAMPLES / "wan50.toml")
    assert scenario.link.spec().rate_up_kbps == 50
    assert scenario.strategy.name == "ours"
