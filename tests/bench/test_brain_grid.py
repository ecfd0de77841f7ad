"""The grid: its cells run, its figures fit each other, and its verdicts are those of the figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from acespec.bench.brain.__main__ import QUESTIONS, main
from acespec.bench.brain.cells import LINKS, PLAIN, TRACES, Cell, Effort, Figures, Ratio, in_parallel, measure, ours
from acespec.bench.brain.grid import CELLS, QUICK, Outcome, Task, chosen, run_cell
from acespec.bench.brain.live import Both, same_order
from acespec.bench.brain.real_cells import Known, find_pair, in_world
from acespec.proto.errors import ModelNotFound, UsageError

CELL = Cell("a100-70b", "wan50", ".8")
SMALL = Effort(seeds=2, turns=1, tokens=60)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run_cell(Task(CELL, SMALL, (2, 8, 16)))


def test_a_cell_knows_every_way_and_the_oracle_is_above_every_choice(outcome: Outcome) -> None:
    assert set(outcome.ways) == {
        "plain",
        *(f"fixed:{n} off" for n in (2, 8, 16)),
        *(f"{name} off" for name in ("rate", "confidence", "ucb")),
        *(f"rate {shape}" for shape in ("siblings:4", "on")),
        *(f"fixed:{n} {shape}" for n in {outcome.best_fixed()[0], 16} for shape in ("siblings:4", "on")),
        *(f"oracle {draft} {shape}" for draft in ("fixed:16", "rate") for shape in ("off", "on")),
    }
    length, best = outcome.best_fixed()
    assert length in (8, 16)
    assert best.speed == max(outcome.ways[f"fixed:{n} off"].speed for n in (2, 8, 16))
    assert outcome.oracle().speed >= best.speed
    assert outcome.oracle("on").speed > 1.3 * outcome.oracle().speed
    assert outcome.ways["plain"].speed == pytest.approx(6.87, rel=0.02), "the profile's own"


def test_figures_fit_each_other(outcome: Outcome) -> None:
    for name, way in outcome.ways.items():
        assert way.rows <= way.steps + way.drafted, f"{name}: only what was sent has a row"
        assert way.drafted <= way.proposals * (1 if name.endswith("off") else 4)
        assert (way.surprises == 0) == (name == "plain" or name.startswith("oracle"))
    plain, chain, tree = (outcome.ways[name] for name in ("plain", "fixed:8 off", "fixed:16 on"))
    assert plain.steps == pytest.approx(1.0, abs=0.02)
    assert plain.drafted == plain.proposals == plain.acceptance_length == 0
    assert chain.covered == chain.saved == 0, "a chain has no branch cache"
    assert 0 < tree.covered <= 1
    assert 0 < outcome.ways["rate on"].calibration_error < 0.3
    assert plain.verifier_ms == pytest.approx(145.5, rel=0.02)


def faked(speeds: Mapping[str, tuple[float, ...]], some: Figures) -> Outcome:
    return Outcome(CELL, {name: replace(some, speeds=each) for name, each in speeds.items()})


def test_a_cell_that_misses_is_marked_and_a_doubtful_one_doubtfully(outcome: Outcome) -> None:
    some = outcome.ways["plain"]
    sound = {"fixed:4 off": (10.0, 10.0), "fixed:8 off": (9.0, 9.0), "rate off": (9.6, 9.6), "rate on": (12.0, 11.0)}
    assert faked(sound, some).misses == ()
    assert faked(sound | {"rate off": (9.4, 9.4)}, some).misses == ("chain",)
    assert faked(sound | {"rate on": (8.0, 10.8)}, some).misses == ("tree?",)
    fast = faked(sound | {"oracle rate off": (20.0, 20.0), "oracle rate on": (40.0, 40.0)}, some)
    assert fast.oracle().speed == 20.0
    assert fast.against_oracle() == Ratio(0.48, 0.0)


def test_ratios_are_of_pairs(outcome: Outcome) -> None:
    some = outcome.ways["plain"]
    ratio = Ratio.of(replace(some, speeds=(11.0, 22.0)), replace(some, speeds=(10.0, 20.0)))
    assert ratio.value == pytest.approx(1.1)
    assert ratio.error == pytest.approx(0.0), "however far apart the seeds are"
    assert replace(some, speeds=(9.0, 11.0)).error == pytest.approx(1.0)


def test_processes_find_what_one_finds() -> None:
    items = [1, 2, 3]
    assert sorted(in_parallel(_measure, items, 1)) == sorted(in_parallel(_measure, items, 2))


def _measure(length: int) -> tuple[float, ...]:
    return measure(CELL, ours(f"fixed:{length}"), Effort(1, 1, 20)).speeds


def test_the_cells_are_all_there_is_to_run() -> None:
    assert 40 <= len(set(CELLS)) == len(CELLS) <= 60
    for cell in CELLS:
        assert cell.link in LINKS
        assert cell.acceptance in TRACES or float(cell.acceptance)
    assert chosen(CELLS, ["a100-70b:gprs:.8"])[0].link == "gprs"
    assert len(chosen(QUICK, ())) == 4
    with pytest.raises(UsageError, match="name words of a cell"):
        chosen(CELLS, ["mars"])


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "grid.json"
    little = ["--lengths", "4,8", "--seeds", "1", "--turns", "1", "--tokens", "30", "--jobs", "1"]
    assert main(["grid", "--cell", "theory-25ms:wan50", *little, "--json", str(file)]) in (0, 1)
    shown = capsys.readouterr().out
    assert "theory-25ms wan50 .9" in shown
    assert "regret of rate, chain against the oracle" in shown
    (cell,) = json.loads(file.read_text())
    assert cell["cell"]["link"] == "wan50"
    assert cell["best_fixed"] in (4, 8)
    assert cell["ways"]["plain"]["speed"] > 0


def test_unknown_options_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    for lengths in ("0,3", "17", "some"):
        assert main(["grid", "--lengths", lengths]) == UsageError.exit_code
    assert "numbers from 1 to 16" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["nonsense"])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in QUESTIONS), "without loading any of them"
    assert {"grid", "live", "frontier", "drift", "siblings", "cache", "age", "cpu"} == set(QUESTIONS)


def test_an_order_is_compared_where_the_world_has_one(outcome: Outcome) -> None:
    def both(world: float, live: float) -> Both:
        some = outcome.ways["plain"]
        return Both(replace(some, speeds=(world,)), replace(some, speeds=(live,)))

    ways = {"a": both(10.0, 9.0), "b": both(10.3, 8.0), "c": both(20.0, 19.0)}
    assert same_order(ways) == (2, 2), "a and b are too near to each other"
    assert same_order(ways | {"c": both(20.0, 8.5)}) == (2, 1)


def test_the_real_pair_is_asked_for_by_name_and_its_world_has_its_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACESPEC_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match="qwen or smollm2"):
        find_pair("llama")
    with pytest.raises(ModelNotFound):
        find_pair("smollm2")
    assert main(["live", "--real", "--quick"]) == 0
    assert "skipped" in capsys.readouterr().out
    trace = tmp_path / "answers.jsonl"
    trace.write_text(json.dumps({"ids": list(range(300, 340)), "ranks": [0] * 40}))
    known = Known(0.2, 0.01, 1.0, trace)
    assert in_world("wan50", PLAIN, known, 40) == pytest.approx(5.0, rel=0.02)
    assert in_world("wan50", ours("fixed:8"), known, 40) > 10.0


@pytest.mark.slow
def test_the_live_stack_confirms_a_cell(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--cell", "a100-70b:wan50:.9", "--tokens", "40", "--turns", "1", "--jobs", "2"]
    assert main(["live", *options]) in (0, 1)
    assert "pairs that the world sets more than 5 % apart" in capsys.readouterr().out
