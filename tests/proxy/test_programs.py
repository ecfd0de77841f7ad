"""The command line `acespec proxy`, and a program of others that talks to it: `llm`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from acespec.sim.processes import free_port
from tests.proxy.stack import VOCAB, Proxy, stack, verifier, words

PROXY = [sys.executable, "-m", "acespec.edge.cli"]


async def llm(near: Proxy, folder: Path, *arguments: str) -> str:
    """Run it with a model of ours in its own configuration."""
    folder.joinpath("extra-openai-models.yaml").write_text(
        f"- model_id: ours\n  model_name: replay\n  api_base: {near.url}/v1\n  can_stream: true\n"
    )
    environment = {**os.environ, "LLM_USER_PATH": str(folder), "OPENAI_API_KEY": "none"}
    command = [sys.executable, "-m", "llm", "-m", "ours", *arguments]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=50, env=environment, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_llm_streams_asks_whole_and_goes_on(tmp_path: Path) -> None:
    async with stack() as (_, near):
        options = ("-o", "seed", "3", "-o", "max_tokens", "12")
        streamed = await llm(near, tmp_path, "hi", *options)
        whole = await llm(near, tmp_path, "hi", "--no-stream", *options)
        await llm(near, tmp_path, "-c", "more", *options)
        assert len(near.clients) == 1, "the conversation went on in its session"
    assert streamed.strip("\n") == whole.strip("\n") == words("hi", 12, 3)


def test_a_refusal_of_the_command_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*PROXY, "proxy", "--verifier", "127.0.0.1:1", "--insecure", "--model", "replay:1000", "--port", port],
            capture_output=True,
            text=True,
            timeout=50,
        )
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


async def test_it_answers_while_it_loads_and_ends_in_order(tmp_path: Path) -> None:
    """Started before the verifier, stopped by SIGTERM in the middle of an answer."""
    far_port, port = free_port(), free_port()
    log = tmp_path / "log"
    command = [*PROXY, "serve", "--verifier", f"127.0.0.1:{far_port}", "--insecure", "--model", f"replay:{VOCAB}"]
    command += ["--drafter", "none", "--port", str(port), "--drain", "0.3"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(  # noqa: ASYNC220
            command, stderr=stderr, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    try:
        await asyncio.to_thread(_until, lambda: _get(port, "/health")[0] == 503)
        assert "Loading model" in _get(port, "/health")[1]
        async with verifier(step_s=0.02, port=far_port) as far:
            await asyncio.to_thread(_until, lambda: _get(port, "/health")[0] == 200)
            asking = asyncio.create_task(asyncio.to_thread(_ask, port))
            async with asyncio.timeout(10):
                while not far.hosts.running:
                    await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            status, body = await asking
            assert (status, json.loads(body)["error"]["code"]) == (503, "shutting_down")
            assert await asyncio.to_thread(process.wait, 10) == 0
            assert far.hosts.running == 0
    finally:
        process.kill()
        process.wait()
    told = log.read_text()
    assert f"listening on http://127.0.0.1:{port}" in told
    assert f"ready: replay at http://127.0.0.1:{port}/v1" in told
    assert "Traceback" not in told, told


def _ask(port: int) -> tuple[int, str]:
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3000}).encode()
    return _get(port, "/v1/chat/completions", body)


def _get(port: int, path: str, body: bytes | None = None) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, answer.read().decode()
    except OSError:
        return 0, ""


def _until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
