"""`acespec-sim sweep`: what varies, cells in several processes, what is kept, what failed, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from acespec.proto.errors import UsageError
from acespec.sim.sweep_command import CellsFailed, SweepOptions, sweep_command
from acespec.sim.sweep_file import read_sweep
from acespec.sim.sweep_store import SweepStore, cell_key
from acespec.sim.world.scenario import DrafterSpec, Scenario
from acespec.sim.world.world import run

EXAMPLES = Path(__file__).parents[2] / "scenarios"
MAIN = "from acespec.sim.cli import main; main()"
BASE = """
duration_s = 3
load = { tokens = 16, prompt_tokens = 4 }
strategy = { name = "plain" }
"""


def written(folder: Path, text: str, name: str = "demo.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_axes_span_a_grid_in_their_order(tmp_path: Path) -> None:
    text = BASE + '[sweep.axes]\n"link.rtt_ms" = [10, 100]\nseed = [1, 2, 3]\n'
    sweep = read_sweep(written(tmp_path, text))
    assert [cell.point for cell in sweep.cells] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [cell.scenario.link.spec().delay_ms for cell in sweep.cells] == [5, 5, 5, 50, 50, 50]
    assert [cell.scenario.seed for cell in sweep.cells] == [1, 2, 3] * 2
    assert sweep.cells[4].name == "100 / 2"
    assert len({cell.scenario.config_hash() for cell in sweep.cells}) == 6


def test_zipped_axes_are_one(tmp_path: Path) -> None:
    text = BASE + '[sweep]\ncombine = "zip"\n[sweep.axes]\n"link.rtt_ms" = [10, 100]\nseed = [1, 2]\n'
    sweep = read_sweep(written(tmp_path, text))
    assert len(sweep.axes) == 1
    assert [(c.scenario.link.spec().delay_ms, c.scenario.seed) for c in sweep.cells] == [(5, 1), (50, 2)]
    assert sweep.cells[1].name == "100, 2"


def test_joined_keys_vary_together(tmp_path: Path) -> None:
    axis = '"link.overrides.rate_up_kbps, link.overrides.rate_down_kbps" = [[20, 50], 100]'
    sweep = read_sweep(written(tmp_path, f"{BASE}[sweep.axes]\n{axis}\n"))
    specs = [cell.scenario.link.spec() for cell in sweep.cells]
    assert [(spec.rate_up_kbps, spec.rate_down_kbps) for spec in specs] == [(20, 50), (100, 100)]
    assert sweep.axes[0].labels == ("20, 50", "100")


def test_tables_replace_a_section_and_keys_change_it(tmp_path: Path) -> None:
    text = BASE + (
        '[sweep.axes]\n"strategy.params.free_run" = ["always", "never"]\n'
        'strategy = [{ name = "plain" }, { name = "ours", params = { draft = "4" } }]\n'
    )
    sweep = read_sweep(written(tmp_path, text))
    assert sweep.axes[1].labels == ("plain", "ours (draft 4)")
    last = sweep.cells[-1].scenario.strategy
    assert (last.name, last.params) == ("ours", {"draft": "4", "free_run": "never"})
    assert sweep.cells[0].scenario.strategy.params == {"free_run": "always"}


def test_a_sweep_may_start_from_a_scenario(tmp_path: Path) -> None:
    written(tmp_path, 'name = "base"\nseed = 9\n[link]\nkbps = 20\n[load]\ntokens = 32\nedges = 3\n', "base.toml")
    text = '[load]\ntokens = 8\n[sweep]\nbase = "base.toml"\n[sweep.axes]\n"link.rtt_ms" = [10]\n'
    scenario = read_sweep(written(tmp_path, text), ["seed=5"]).cells[0].scenario
    assert (scenario.name, scenario.seed) == ("demo", 5)
    assert (scenario.load.tokens, scenario.load.edges) == (8, 3)
    assert (scenario.link.spec().rate_up_kbps, scenario.link.spec().delay_ms) == (20, 5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed = 1", "no table"),
        ("[sweep]", "axes"),
        ("[sweep.axes]\nseed = 1", "must be a list"),
        ("[sweep.axes]\nseed = []", "must be a list"),
        ("[sweep.axes]\n[sweep.axes.link]\nkbps = [1, 2]", "stands in quotes"),
        ('[sweep.axes]\n"seed, duration_s" = [[1, 2, 3]]', "one value for each of 2"),
        ('[sweep]\ncombine = "all"\n[sweep.axes]\nseed = [1]', "product or zip"),
        ('[sweep]\ncombine = "zip"\n[sweep.axes]\nseed = [1]\nduration_s = [1, 2]', "equally many"),
        ("[sweep]\nby = 1\n[sweep.axes]\nseed = [1]", "no key by"),
        ("[sweep]\nbase = 1\n[sweep.axes]\nseed = [1]", "sweep base is 1"),
        ('[sweep.axes]\n"load.edges" = [1, 0]', r"load\.edges = 0: scenario load edges is 0"),
        ('[sweep.axes]\n"link.preset" = ["wan50", "moon"]', r"link\.preset = moon: no link preset 'moon'"),
        ('[sweep.axes]\n"strategy.name" = ["magic"]', "no strategy 'magic'"),
        (f"[sweep.axes]\nseed = {list(range(400))}\nduration_s = {list(range(1, 400))}", "at most 100000"),
    ],
)
def test_sweeps_that_make_no_sense(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_sweep(written(tmp_path, text))


def test_an_axis_cannot_be_set(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="seed is an axis"):
        read_sweep(written(tmp_path, "[sweep.axes]\nseed = [1, 2]\n"), ["seed=3"])


def test_a_key_follows_whatever_changes_the_result(tmp_path: Path) -> None:
    trace = written(tmp_path, "one", "trace.jsonl")
    scenario = Scenario(drafter=DrafterSpec(acceptance=str(trace)))
    before = cell_key(scenario)
    assert cell_key(replace(scenario, name="other")) == before
    assert cell_key(replace(scenario, seed=2)) != before
    trace.write_text("two")
    assert cell_key(scenario) != before


def test_cells_are_run_once_and_equal_runs_in_this_process(tmp_path: Path) -> None:
    path = written(tmp_path, f"{BASE}[sweep.axes]\nseed = [1, 2]\n")
    options = SweepOptions(path, jobs=2, out=tmp_path / "out", command=("acespec-sim", "sweep", "demo.toml"))
    assert "2 cells" in sweep_command(options)
    data = SweepStore(tmp_path / "out").load()
    assert [done.result.scenario.seed for done in data.cells] == [1, 2]
    assert data.cells[1].result.digest == run(data.cells[1].result.scenario).digest
    assert (data.command, data.missing, data.failed) == ("acespec-sim sweep demo.toml", (), ())
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "out" / "cells").iterdir()}
    assert "2 were there already, 0 run" in sweep_command(options)
    path.write_text(f"{BASE}[sweep.axes]\nseed = [2, 3]\n")
    assert "1 were there already, 1 run" in sweep_command(options)
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in files.items())
    assert [done.result.scenario.seed for done in SweepStore(tmp_path / "out").load().cells] == [2, 3]
    assert not list((tmp_path / "out" / "cells").glob("*.part"))


def test_a_cell_that_fails_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    axis = '"drafter.acceptance" = ["0.8", "lost.jsonl", "0.5"]'
    path = written(tmp_path, f'{BASE}[sweep.axes]\n{axis}\n"strategy.name" = ["ours"]\n')
    out = tmp_path / "out"
    with pytest.raises(
        CellsFailed, match=r"1 cells failed.*\n  lost\.jsonl / ours: --acceptance lost\.jsonl"
    ) as failure:
        sweep_command(SweepOptions(path, jobs=1, out=out))
    assert failure.value.exit_code == 1
    data = SweepStore(out).load()
    assert [done.labels[0] for done in data.cells] == ["0.8", "0.5"]
    assert data.failed[0][0] == "lost.jsonl / ours"
    assert "Traceback" in next((out / "cells").glob("*.error")).read_text()


def test_folders_of_something_else_are_left_alone(tmp_path: Path) -> None:
    path = written(tmp_path, f"{BASE}[sweep.axes]\nseed = [1]\n")
    with pytest.raises(UsageError, match="holds something else"):
        sweep_command(SweepOptions(path, out=tmp_path))
    with pytest.raises(UsageError, match="no sweep's folder"):
        SweepStore(tmp_path).load()
    written(tmp_path, json.dumps({"cells": []}), "sweep.json")
    with pytest.raises(UsageError, match="not written by acespec-sim sweep"):
        SweepStore(tmp_path).load()


def test_ctrl_c_keeps_what_is_done_and_leaves_nobody_behind(tmp_path: Path) -> None:
    text = f'{BASE}[sweep.axes]\n"duration_s, load.tokens" = [[3, 16], [3000, 500000], [3000, 500001]]\n'
    path, out = written(tmp_path, text), tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "sweep", str(path), "--out", str(out), "--jobs", "2"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        deadline = time.monotonic() + 40
        while not list(out.glob("cells/*.json")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # As a terminal does: to everybody.
        _, stderr = process.communicate(timeout=40)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "stopped: 1 of 3 cells are kept" in stderr
    assert "Traceback" not in stderr
    assert gone(process.pid)
    data = SweepStore(out).load()
    assert [done.labels for done in data.cells] == [("3, 16",)]
    assert (len(data.missing), data.failed) == (2, ())


def gone(group: int) -> bool:
    """Whether the last process of a group has ended, in ten seconds at most."""
    for _ in range(200):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("name", ["rtt_sweep", "rate_sweep", "load", "strategies"])
def test_example_sweeps_are_well_formed(name: str) -> None:
    assert len(read_sweep(EXAMPLES / f"{name}.toml").cells) >= 12
