"""`acespec-verifier bench` as it is called: on a replay for its figures, on a tiny model for the real thing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from acespec.cloud.bench_command import numbers
from acespec.proto.errors import UsageError
from acespec.proto.replay_profiles import find_verifier
from acespec.proto.timing_profile import TimingProfile
from tests.tiny import tiny_model_folder

COMMAND = [sys.executable, "-m", "acespec.cloud.cli", "bench"]
SMALL = ["--rows", "1,4,8", "--sessions", "1,2", "--context", "20,200", "--repeats", "3"]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60)


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Path]:
    """A profile of long steps, which the clock of a busy machine still tells apart."""
    path = tmp_path / "known.json"
    TimingProfile("known", ((1, 0.040), (8, 0.080)), 0.015, 2000.0, "made up", 0.00003).save(path)
    yield path


def test_a_replay_measures_as_what_it_replays(known: Path, tmp_path: Path) -> None:
    out = tmp_path / "again.json"
    done = run("--backend", "replay", "--profile", str(known), "--json", "--out", str(out), *SMALL)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    profile, truth = TimingProfile.load(out), find_verifier(str(known))
    for rows, sessions, positions in ((1, 1, 20), (8, 1, 1600), (4, 2, 80), (8, 2, 1600)):
        assert profile.step_s(rows, sessions, positions) == pytest.approx(
            truth.step_s(rows, sessions, positions), rel=0.25
        )
    assert data["profile"]["name"] == profile.name == f"replay of {known}"
    assert data["knee"] == profile.knee()
    assert {(p["rows"], p["sessions"], p["context"]) for p in data["points"]} == {
        (r, s, c) for r in (1, 4, 8) for s in (1, 2) for c in (20, 200) if r >= s
    }
    assert 0 <= data["fit_error"]["median"] <= data["fit_error"]["worst"]


def test_a_tiny_model_end_to_end(tmp_path: Path) -> None:
    folder, out = tiny_model_folder(tmp_path / "tiny", max_length=256), tmp_path / "tiny.json"
    done = run("--model", str(folder), "--offline", "--out", str(out), *SMALL, "--context", "20,200,300")
    assert done.returncode == 0, done.stderr
    for part in ("context 20 ", "context 200 ", "2 sessions", "tokens/s", "knee: ", "the profile is off by"):
        assert part in done.stdout, done.stdout
    assert "note: context 300 left out: the model's limit is 256 positions" in done.stdout
    assert f"acespec-verifier serve --backend replay --profile {out}" in done.stdout
    assert find_verifier(str(out)).step_s(1) > 0


def test_what_cannot_be_asked_for_is_refused(tmp_path: Path) -> None:
    for options, complaint in (
        (["--backend", "tpu"], "choose one of torch, replay"),
        (["--rows", "1,x"], "--rows 1,x: give whole numbers"),
        (["--backend", "replay", "--profile", "nowhere"], "no verifier profile 'nowhere'"),
        (["--backend", "replay", "--out", str(tmp_path / "none" / "x.json")], "there is no such folder"),
        (["--backend", "replay", "--context", "99999"], "does not fit"),
    ):
        done = run(*options)
        assert done.returncode == 2
        assert complaint in done.stderr
        assert done.stderr.count("\n") == 1, "one line, no traceback"
        assert done.stdout == ""


def test_ctrl_c_ends_it_cleanly() -> None:
    """By then it works: a log gets its first progress line after two seconds."""
    options = ["--backend", "replay", "--profile", "a100-70b", "--repeats", "50"]
    process = subprocess.Popen([*COMMAND, *options], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stderr is not None
    os.set_blocking(process.stderr.fileno(), False)
    said, deadline = b"", time.monotonic() + 50
    while b"measuring" not in said and time.monotonic() < deadline:
        time.sleep(0.1)
        said += process.stderr.read() or b""
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert b"measuring" in said
    assert process.returncode == 130
    assert out == b""


@pytest.mark.parametrize("text", ["", "0", "1,,2", "-1", "1.5", "1 2"])
def test_bad_lists_are_refused(text: str) -> None:
    assert numbers("--rows", "1, 2,30") == (1, 2, 30)
    with pytest.raises(UsageError, match="--rows"):
        numbers("--rows", text)
