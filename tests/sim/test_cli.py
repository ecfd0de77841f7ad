"""The `acespec-sim` command as a person or a script meets it: real processes and signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from acespec.sim.log_check import summarise
from acespec.sim.packet_log import read_spec
from acespec.sim.run_link import LinkOptions
from acespec.sim.sockets import format_address, parse_address

MAIN = "from acespec.sim.cli import main; main()"
Started = tuple[subprocess.Popen[str], tuple[str, int]]


def acespec_sim(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments], capture_output=True, text=True, timeout=30, check=False
    )


@pytest.fixture
def start_link() -> Iterator[Callable[..., Started]]:
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> Started:
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "link", "--listen", "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stderr is not None
        word, address = process.stderr.readline().split()
        assert word == "ready"
        return process, parse_address(address)

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def echo_server() -> Iterator[tuple[str, int]]:
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client, suppress(ConnectionResetError):
            while data := client.recv(4096):
                client.sendall(data)

    thread = threading.Thread(target=run)
    thread.start()
    host, port = listener.getsockname()
    yield host, port
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_link_serves_until_a_signal_and_reports(
    start_link: Callable[..., Started], echo_server: tuple[str, int], tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "log.jsonl"
    arguments = ("--preset", "wan50", "--rate-up-kbps", "200", "--delay-ms", "5", "--jitter-ms", "0")
    process, address = start_link("--to", format_address(echo_server), *arguments, "--log", str(log), "--json")
    with socket.create_connection(address) as client:
        client.sendall(b"hello")
        assert client.recv(5) == b"hello"
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=10)
    assert process.returncode == 0
    report = json.loads(stdout)
    assert report["rate_ok"] is True
    assert (report["summary"]["up_payload"], report["summary"]["down_payload"]) == (5, 5)
    assert report["summary"] == summarise(log).as_json()
    assert "wan50: up" in stderr
    assert "Traceback" not in stderr
    spec = read_spec(log)
    assert (spec.rate_up_kbps, spec.rate_down_kbps, spec.delay_ms, spec.name) == (200, 50, 5, "wan50")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--preset", "nope"), "no link preset 'nope'"),
        (("--listen", "12345"), "write HOST:PORT"),
        (("--outage", "5"), "START:DURATION"),
        (("--rate-up-kbps", "0"), "rate_up_kbps"),
        (("--log", "/nonexistent/x"), "cannot write link log"),
        (("--mtu", "40"), "mtu"),
    ],
)
def test_bad_options_are_one_clear_line(arguments: tuple[str, ...], says: str) -> None:
    done = acespec_sim("link", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_presets_are_listed() -> None:
    done = acespec_sim("presets")
    assert done.returncode == 0
    assert "wan50" in done.stdout
    assert "the project's own target" in done.stdout


def test_the_command_loads_nothing_heavy() -> None:
    code = "import sys, acespec.sim.cli; print([m for m in ('torch','mlx','grpc','numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "[]"


def test_options_override_the_preset_and_zero_counts() -> None:
    spec = LinkOptions("wan50", jitter_ms=0, queue_bytes=6000, mtu=576, outages=("1:2",), seed=9).spec()
    assert (spec.jitter_ms, spec.queue_bytes, spec.mtu, spec.seed) == (0, 6000, 576, 9)
    assert (spec.outages[0].start_s, spec.outages[0].duration_s) == (1, 2)
    assert spec.rate_up_kbps == 50


@pytest.mark.parametrize("text", ["127.0.0.1:80", "[::1]:50051", "localhost:0"])
def test_addresses_read_back(text: str) -> None:
    assert format_address(parse_address(text)) == text
