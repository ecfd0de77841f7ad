"""`acespec-sim tun` as a person or a script meets it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from acespec.bench import link_traffic
from acespec.sim.link_check import check_log
from acespec.sim.packet_log import read_spec

from .tun_lab import left_behind, needs_root

pytestmark = [needs_root, pytest.mark.root]
COMMAND = [sys.executable, "-c", "from acespec.sim.cli import main; main()", "tun"]
SERVE = f"{sys.executable} {link_traffic.__file__} serve 10.77.0.2 5000"
QUICK = """
rate_up_kbps = 2000
rate_down_kbps = 2000
delay_ms = 5
"""


@pytest.fixture
def quick(tmp_path: Path) -> str:
    path = tmp_path / "quick.toml"
    path.write_text(QUICK)
    return str(path)


def tun(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=30, check=False)


def test_a_command_at_the_edge_meets_one_in_the_cloud(quick: str, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    rounds = [sys.executable, link_traffic.__file__, "rounds", "10.77.0.2", "5000", "3", "64"]
    done = tun("--link", quick, "--log", log, "--cloud-cmd", SERVE, "--cloud-port", "5000", "--json", "--", *rounds)
    assert done.returncode == 0, done.stderr
    reader = json.JSONDecoder()
    times, end = reader.raw_decode(done.stdout)
    assert min(times["ms"]) >= 10 + 2 * 116 * 8 / 2000
    report = json.loads(done.stdout[end:])
    assert report["rate_ok"]
    assert report["exit_code"] == 0
    checked = check_log(log)
    assert checked.ok
    assert checked.summary.up_wire == report["summary"]["up_wire"]
    assert read_spec(log).name == "quick"
    assert "ready: edge 10.77.0.1, cloud 10.77.0.2" in done.stderr
    assert "quick: up " in done.stderr


def test_the_exit_status_is_that_of_the_command(quick: str) -> None:
    assert tun("--link", quick, "--", "sh", "-c", "exit 7").returncode == 7
    assert tun("--link", quick, "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9


def test_a_cloud_that_does_not_come_up_is_an_error(quick: str) -> None:
    done = tun("--link", quick, "--cloud-cmd", "sh -c 'exit 3'", "--cloud-port", "5000", "--", "true")
    assert done.returncode == 2
    assert "the cloud command ended with status 3 before it listened on port 5000" in done.stderr


def test_an_unknown_preset_is_an_error_before_anything_is_made() -> None:
    done = tun("--preset", "wan51", "--", "true")
    assert done.returncode == 2
    assert "wan51" in done.stderr
    assert "ready" not in done.stderr


@pytest.mark.parametrize(
    ("number", "arguments"),
    [
        (signal.SIGINT, ()),
        pytest.param(signal.SIGHUP, (), marks=pytest.mark.slow),
        (signal.SIGTERM, ("--", "sleep", "60")),
        pytest.param(signal.SIGINT, ("--", "sleep", "60"), marks=pytest.mark.slow),
    ],
)
def test_signals_end_it_and_nothing_stays(number: signal.Signals, arguments: tuple[str, ...], quick: str) -> None:
    command = [*COMMAND, "--link", quick, "--cloud-cmd", "sleep 60", "--no-status", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("ready")
        assert len(left_behind(process.pid)) == 2
        time.sleep(0.1)
        process.send_signal(number)
        process.communicate(timeout=10)
        assert process.returncode == (130 if arguments else 0)
        assert left_behind(process.pid) == []


def test_a_held_link_says_how_to_enter_it_and_shows_its_state(quick: str) -> None:
    command = [*COMMAND, "--link", quick, "--status"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(3)]
        edge = lines[1].removeprefix("edge: ").replace("COMMAND", "cat /proc/net/dev").split()
        assert "ace0" in subprocess.run(edge, capture_output=True, text=True, check=True).stdout
        assert process.stderr.readline().startswith("up 0.0 Kbps, 0 B queued | down 0.0 Kbps")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
        assert process.returncode == 0
