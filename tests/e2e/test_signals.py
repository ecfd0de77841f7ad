"""Clients that vanish, Ctrl-C everywhere, and memory that comes back: over real processes."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from pathlib import Path

import pytest

from acespec.models.tokenizer import Tokenizer
from tests.e2e.conftest import GRACE_S, Served
from tests.e2e.processes import EDGE, Process, process, run, server
from tests.e2e.raw_edge import vanish_mid_draft

LONG = ["--max-tokens", "3500", "-p", "The river", "--temp", "1", "--seed", "5"]
SLACK_BYTES = 6 * 2**20
"""What allocators may keep: 0.2 MiB was seen. The KV alone of the clients that vanish here takes 48 MiB."""


def test_a_killed_client_disturbs_nobody(open_server: Served, tmp_path: Path) -> None:
    seen = ["--json", "--max-tokens", "300", "-p", "In 1987 there were", "--temp", "0.8", "--seed", "9"]
    alone = run(EDGE, ["generate", *open_server.edge("--insecure", *seen)], tmp_path / "alone")
    with (
        process(EDGE, ["generate", *open_server.edge("--insecure", *LONG)], tmp_path / "victim") as victim,
        process(EDGE, ["generate", *open_server.edge("--insecure", *seen)], tmp_path / "bystander") as bystander,
    ):
        victim.await_output(40)
        victim.kill()
        done = bystander.wait()
    assert alone.code == done.code == 0
    assert json.loads(done.stdout)["token_ids"] == json.loads(alone.stdout)["token_ids"]
    assert open_server.process.popen.poll() is None


async def test_memory_comes_back_after_many_vanished_clients(open_server: Served) -> None:
    tokenizer = Tokenizer.load(open_server.model)

    async def crowd(first: int) -> int:
        """Resident bytes once 48 clients have come, vanished, and been forgotten."""
        for batch in range(first, first + 48, 8):
            await asyncio.gather(
                *(vanish_mid_draft(open_server.address, tokenizer, n, 500) for n in range(batch, batch + 8))
            )
        await asyncio.sleep(GRACE_S + 1.4)  # The verifier looks for expired sessions once a second.
        return open_server.process.resident_bytes()

    before = await crowd(0)  # The first crowd makes every pool and cache as large as it gets.
    grown = await crowd(100) - before
    assert grown < SLACK_BYTES, f"{grown / 2**20:.1f} MiB more after 48 clients have vanished"


def test_ctrl_c_in_generate(open_server: Served, tmp_path: Path) -> None:
    with process(EDGE, ["generate", *open_server.edge("--insecure", *LONG)], tmp_path) as running:
        running.await_output(20)
        running.interrupt()
        done = running.wait(10)
    assert done.code == 130
    assert done.error == "error: interrupted"


def test_ctrl_c_while_the_verifier_does_not_answer(tmp_path: Path, model_folder: Path) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        arguments = ["generate", "--verifier", address, "--insecure", "--model", str(model_folder), *LONG]
        with process(EDGE, arguments, tmp_path) as running:
            time.sleep(1.5)
            running.interrupt()
            done = running.wait(10)
    assert done.code == 130
    assert done.error == "error: interrupted"


def test_ctrl_c_in_chat_stops_the_answer_only(open_server: Served, tmp_path: Path) -> None:
    options = ["--max-tokens", "3000", "--temp", "1", "--seed", "5"]
    with process(EDGE, ["chat", *open_server.edge("--insecure", *options)], tmp_path) as chat:
        chat.say("Where does the road begin?")
        chat.await_output(30)
        chat.interrupt()
        before = len(_settled(chat))
        chat.say("And where does it end?")
        chat.await_output(before + 30)
        chat.interrupt()
        _settled(chat)
        chat.say("/quit")
        done = chat.wait(10)
    assert done.code == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "error" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_drains_the_server(number: signal.Signals, model_folder: Path, tmp_path: Path) -> None:
    """A short turn that runs ends in full; the server then exits 0 by itself."""
    arguments = ["--model", str(model_folder), "--insecure", "--drain", "10"]
    with server(arguments, tmp_path / "server") as (verifier, address):
        edge = ["generate", "--verifier", address, "--insecure", "--model", str(model_folder)]
        with process(EDGE, [*edge, "--max-tokens", "600", "-p", "The river"], tmp_path / "edge") as client:
            client.await_output(10)
            verifier.popen.send_signal(number)
            done = client.wait()
        ended = verifier.wait(10)
    assert done.code == 0, done.stderr
    assert "600 tokens in" in done.stderr
    assert ended.code == 0
    assert "Traceback" not in ended.stderr


def _settled(chat: Process, quiet_s: float = 0.4) -> str:
    """What it has printed, once it prints no more although it runs."""
    shown = chat.stdout
    deadline = time.monotonic() + 10
    while True:
        time.sleep(quiet_s)
        if chat.stdout == shown:
            assert chat.popen.poll() is None, chat.stderr
            return shown
        assert time.monotonic() < deadline, "the answer goes on"
        shown = chat.stdout
