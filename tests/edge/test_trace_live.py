"""`--trace` on the command line and through a broken connection, over real gRPC on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from acespec.edge.brain.rate_controller import RateController
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.tracing.timeline import timeline_of
from acespec.edge.tracing.trace_reader import read_trace
from acespec.edge.tracing.trace_summary import summary_of
from acespec.edge.tracing.trace_writer import TraceWriter
from acespec.edge.turn_request import TurnRequest
from acespec.edge.watch import CommitSeen, Drafted, Outage
from acespec.models.tokenizer import Tokenizer
from tests.drafters import OracleDrafter
from tests.edge.fake_cloud import FakeCloud
from tests.edge.fake_server import FakeServer
from tests.tiny import tiny_model_folder

PROMPT_LEN = 8
SECRET = "key-that-nobody-may-read"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("model"))


async def test_an_outage_is_in_the_trace_and_in_the_picture(model: Path, tmp_path: Path) -> None:
    tokenizer, dice, path = Tokenizer.load(model), random.Random(4), tmp_path / "run.jsonl"
    truth = [dice.randrange(3, tokenizer.vocab_size) for _ in range(200)]
    server = FakeServer(FakeCloud(truth, tokenizer.vocab_size), pace_s=0.01)
    await server.start()
    with TraceWriter(path) as trace:
        endpoint = Endpoint(server.target, insecure=True)
        async with Client(endpoint, tokenizer, OracleDrafter(truth, 0.7), RateController()) as client:
            client.watch(trace.session())
            turn = asyncio.create_task(_complete(client, truth[:PROMPT_LEN]))
            await server.until(lambda: len(client.session.ids) > PROMPT_LEN + 20)
            await server.kill()
            await asyncio.sleep(0.1)
            await server.start()
            done = await turn
    await server.kill()
    read = read_trace(path)
    told = [t for m in read.moments if isinstance(m.happening, CommitSeen) for t in m.happening.tokens]
    assert told == list(done.token_ids) == truth[PROMPT_LEN : PROMPT_LEN + 150]
    assert any(isinstance(m.happening, Outage) for m in read.moments)
    assert any(isinstance(m.happening, Drafted) for m in read.moments)
    (outage,) = timeline_of(read).outages
    assert 0.05 < outage.end - outage.start < 10
    summary = summary_of(read)
    assert (summary.tokens, summary.up["open"]) == (150, 1 + done.reconnects)
    assert summary.totals == done.totals


async def _complete(client: Client, ids: list[int]) -> Completion:
    async with aclosing(client.stream(ids, TurnRequest(max_tokens=150, seed=5))) as parts:
        async for part in parts:
            if isinstance(part, Completion):
                return part
    raise AssertionError("a stream ended without its completion")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ACESPEC_")}
    return clean | {"ACESPEC_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def served(model: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.edge.fake_verifier", str(model)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(10)
    process.stdout.close()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "acespec.edge.cli", *arguments]


def acespec(*arguments: str, env: dict[str, str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), env=env, input=stdin, capture_output=True, text=True, timeout=30, check=False
    )


def test_generate_writes_one_file_for_all_answers_and_no_key(
    served: str, model: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    options = ("--verifier", served, "--insecure", "--model", str(model), "--api-key", SECRET, "--seed", "3")
    given = environment | {"ACESPEC_TRACE": str(path)}
    done = acespec("generate", *options, "-n", "2", "-m", "20", "-p", "hello", "--json", env=given)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert SECRET not in path.read_text()
    assert json.loads(path.read_text().partition("\n")[0])["options"]["drafter"] == "ngram"
    told = []
    for number in range(2):
        trace = read_trace(path, number)
        told.append([t for m in trace.moments if isinstance(m.happening, CommitSeen) for t in m.happening.tokens])
    assert sorted(told) == sorted(answer["token_ids"] for answer in answers)
    shown = acespec("trace", "show", str(path), "--json", "--session", "1", env=environment)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["tokens"] == 20


def test_chat_traces_its_turns(served: str, model: Path, environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    options = ("--verifier", served, "--insecure", "--model", str(model), "--trace", str(path), "-m", "10")
    done = acespec("chat", *options, env=environment, stdin="one\ntwo\n")
    assert done.returncode == 0, done.stderr
    summary = summary_of(read_trace(path))
    assert (summary.turns, summary.tokens) == (2, 20)


def test_an_interrupted_run_leaves_a_trace_that_can_be_read(
    served: str, model: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    options = ("--verifier", served, "--insecure", "--model", str(model), "--trace", str(path), "-m", "100000")
    process = subprocess.Popen(
        command("generate", *options, "-p", "hello"),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.read(5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    summary = summary_of(read_trace(path))
    assert summary.tokens > 0
    assert summary.up.get("cancel") == 1


def test_a_trace_that_cannot_be_written_stops_before_anything_is_sent(
    served: str, model: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    options = ("--verifier", served, "--insecure", "--model", str(model), "--trace", str(tmp_path / "no" / "t"))
    done = acespec("generate", *options, "-p", "hello", env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--trace" in done.stderr
    assert done.stderr.count("\n") == 1


def test_showing_a_trace_needs_nothing_heavy(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text('{"kind":"trace","format":1}\n{"t":0,"kind":"outage","reason":"x"}\n')
    program = (
        "import sys\n"
        "from acespec.edge.cli import main\n"
        f"sys.argv = ['acespec', 'trace', 'show', {str(path)!r}]\n"
        "try:\n    main()\n"
        "finally:\n"
        "    heavy = {'torch', 'mlx', 'grpc', 'tokenizers', 'matplotlib', 'numpy'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
