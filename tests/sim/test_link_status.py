"""The live line: its figures, and that it shows on a terminal or on request only."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time

from acespec.sim.packet_log import PacketRecord
from acespec.sim.shaper import LinkState
from acespec.sim.status_line import ERASE, StatusLine
from acespec.sim.units import SECOND

from .test_cli import MAIN

FIGURES = re.compile(r"up [\d.]+ Kbps, \d+ B queued \| down [\d.]+ Kbps, \d+ B queued \| \d+ dropped")
LINK = [sys.executable, "-c", MAIN, "link", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"]


def packet(start: int, finish: int, **other: object) -> PacketRecord:
    fields = {"drop": None, "release": finish, **other}
    return PacketRecord(0, "up", 1, "data", 6198, 6250, start, finish, **fields)  # type: ignore[arg-type]


def test_the_rate_is_that_since_the_last_look() -> None:
    line = StatusLine()
    line.add(packet(0, SECOND))
    line.add(packet(SECOND, 2 * SECOND, drop="loss", release=None))
    assert line.text(LinkState(SECOND // 2, 6250, 0, SECOND // 2)) == (
        "up 50.0 Kbps, 6250 B queued | down 0.0 Kbps, 0 B queued | 1 dropped"
    )
    assert line.text(LinkState(SECOND, 0, 7, SECOND)).startswith("up 50.0 Kbps, 0 B queued | down 0.0 Kbps, 7 B")
    assert line.text(LinkState(3 * SECOND, 0, 0, 3 * SECOND)).startswith("up 25.0 Kbps")
    assert line.text(LinkState(4 * SECOND, 0, 0, 4 * SECOND)).startswith("up 0.0 Kbps")


def test_what_a_policer_passes_counts_and_what_it_drops_does_not() -> None:
    line = StatusLine()
    line.add(packet(5, 5))
    line.add(packet(6, 6, drop="police", release=None))
    assert line.text(LinkState(SECOND, 0, 0, SECOND)).startswith("up 50.0 Kbps")


def test_an_outage_is_shown_with_what_is_left_of_it() -> None:
    assert StatusLine().text(LinkState(SECOND, 0, 0, 3 * SECOND)).endswith("| link down, 2.0 s left")


def finish(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0


def test_it_is_written_twice_a_second_where_asked_for() -> None:
    process = subprocess.Popen([*LINK, "--status"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("ready ")
    begin = time.monotonic()
    lines = [process.stderr.readline() for _ in range(2)]
    took = time.monotonic() - begin
    assert all(FIGURES.fullmatch(line.strip()) for line in lines)
    assert 0.7 < took < 3
    finish(process)
    process.stderr.close()


def test_a_pipe_stays_quiet_unless_asked() -> None:
    process = subprocess.Popen(LINK, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("ready ")
    time.sleep(0.8)
    finish(process)
    assert FIGURES.search(process.stderr.read()) is None
    process.stderr.close()


def test_a_terminal_shows_it_on_one_line() -> None:
    terminal, stderr = pty.openpty()
    process = subprocess.Popen(LINK, stderr=stderr, text=True)
    os.close(stderr)
    shown = os.read(terminal, 4096)
    assert b"ready " in shown
    time.sleep(1.2)
    finish(process)
    shown += os.read(terminal, 4096)
    os.close(terminal)
    _, *lines, _ = shown.decode().split(ERASE)
    assert len(lines) >= 2
    assert all(FIGURES.fullmatch(line) for line in lines if line)
    assert shown.decode().split(ERASE)[-1].startswith("wan50: up 0 B")
