"""The commands that rehearse and break things: they report what they find, and leave nothing behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from acespec.bench import schedules
from acespec.bench.outage_stack import Verifier, way_to
from acespec.bench.outage_trial import POINTS, Bench
from acespec.bench.outages import table
from acespec.models.replay_tokenizer import replay_tokenizer
from acespec.sim.rehearsal import rehearse
from acespec.sim.schedule import parse_schedule
from tests.protocol.test_planted_faults import resume_a_cancelled_turn

VOCABULARY = 4096


def run_schedules(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["schedules", *arguments])
    return schedules.main()


def test_schedules_that_hold(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_schedules(monkeypatch, "--count", "20", "--first", "500") == 0
    assert "every schedule held" in capsys.readouterr().out


def test_a_failing_schedule_is_made_small_and_can_be_run_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with monkeypatch.context() as planted:
        resume_a_cancelled_turn(planted)
        assert run_schedules(planted, "--count", "200", "--most-faults", "10") == 1
        out, err = capsys.readouterr()
        small = parse_schedule(out)
        assert "cancelled" in out.splitlines()[0]
        assert err.startswith("seed ")
        assert "cancel" in [f.kind for f in small.faults]
        assert len(small.faults) <= 4
        assert len(small.asks) == 2
        script = tmp_path / "script"
        script.write_text(out)
        assert run_schedules(planted, "--script", str(script)) == 1
        capsys.readouterr()
    assert rehearse(small) is None
    assert run_schedules(monkeypatch, "--script", str(script)) == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_real_processes_come_back_with_the_right_ids(tmp_path: Path) -> None:
    bench = Bench(replay_tokenizer(VOCABULARY))
    options = ["--backend", "replay", "--vocab", str(VOCABULARY), "--free-run", "always"]
    with (
        Verifier.running(tmp_path, "one", options) as one,
        Verifier.running(tmp_path, "other", options) as other,
    ):
        async with way_to(one.address, "wan50", tmp_path, "link") as way:
            trials = [await bench.cut(way, point, 1.0, 2 * n) for n, point in enumerate(POINTS)]
            trials.append(await bench.cut(way, "drafting", 11.0, 20))
            trials.append(await bench.restart(way, "drafting", one, 30))
            trials.append(await bench.move(way, "commit", other.address, 40))
    assert all(trial.exact for trial in trials)
    assert [trial.resyncs for trial in trials] == [0] * 8
    assert [trial.reconnects > 0 for trial in trials] == [False] * 5 + [True] * 3
    assert len(table(trials)) == 1 + 6 + 2 + 2 + 2
