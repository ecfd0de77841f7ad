"""The replay backend and the replayed drafters in the real service and client, in one process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acespec.cloud.admission import Admission
from acespec.cloud.auth import Keys
from acespec.cloud.engine import EngineBackend
from acespec.cloud.host import Hosts
from acespec.cloud.load import Target
from acespec.cloud.replay.runner import ReplayRunner
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.server import serving as serving_grpc
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.edge.brain.controller import Controller, FixedController
from acespec.edge.brain.controllers import make_controller
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.drafters.base import QuietDrafter
from acespec.edge.drafters.replay import REPLAY_KINDS
from acespec.edge.drafters.replay_accuracy import DepthAccuracy
from acespec.edge.turn_request import TurnRequest, as_sent
from acespec.models.replay_tokenizer import replay_tokenizer
from acespec.proto.messages import FinishReason
from acespec.proto.replay_text import RecordedText, ReplayText, SyntheticText
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.timing_profile import TimingProfile
from acespec.sim.processes import free_port, serving

VOCAB = 1000
TOKENIZER = replay_tokenizer(VOCAB)
FAST = TimingProfile("test", ((1, 0.001),), session_s=0.0, prefill_rate=1e6, source="made up")
PROMPT = TOKENIZER.encode("Say something long.")


@asynccontextmanager
async def verifier(text: ReplayText, free_run: FreeRun) -> AsyncIterator[str]:
    target = Target("replay", ReplayRunner(text, FAST, vocab_size=VOCAB), TOKENIZER)
    limits = Limits(max_length=4096)
    card = target.card(limits, free_run, 4095)
    backend = EngineBackend(
        target.runner, TurnTable(target.runner, limits=limits, decoder=target.decoder, free_run=free_run)
    )
    async with backend:
        hosts = Hosts(Admission(card, TOKENIZER.encode, 0.0), backend)
        async with serving_grpc(card, hosts, address="127.0.0.1:0", keys=Keys(), drain_s=0.1) as port:
            yield f"127.0.0.1:{port}"


async def run(
    address: str,
    text: ReplayText,
    kind: str,
    controller: Controller,
    *,
    tokens: int,
    seed: int = 5,
    chance: float = 0.8,
) -> Completion:
    drafter = QuietDrafter() if kind == "none" else REPLAY_KINDS[kind](text, DepthAccuracy((chance,)), 0.0)
    request = TurnRequest(as_sent(SamplingParams()), seed=seed, max_tokens=tokens, end_ids=TOKENIZER.eos_ids)
    async with Client(Endpoint(address, insecure=True), TOKENIZER, drafter, controller) as client:
        async for part in client.stream(PROMPT, request):
            if isinstance(part, Completion):
                return part
    raise AssertionError("no completion")


@pytest.mark.parametrize("free_run", list(FreeRun))
async def test_the_ids_are_the_text_s_own_whatever_the_drafter(free_run: FreeRun) -> None:
    text, start = SyntheticText(VOCAB), len(PROMPT)
    expected = tuple(text.token(5, p, start) for p in range(start, start + 150))
    async with verifier(text, free_run) as address:
        for kind in ("none", *REPLAY_KINDS):
            controller = FixedController(0) if kind == "none" else make_controller("auto")
            done = await run(address, text, kind, controller, tokens=150)
            assert done.token_ids == expected, kind
            if kind in ("useless", "hostile"):
                assert done.totals.accepted_tokens == 0


async def test_acceptance_is_the_prescribed_one() -> None:
    """One draft at a time, and the cloud waits for it: accepted per drafted is the chance itself."""
    text = SyntheticText(VOCAB)
    async with verifier(text, FreeRun.NEVER) as address:
        done = await run(address, text, "replay", FixedController(1), tokens=500, chance=0.7)
    assert done.totals.draft_tokens > 200
    assert done.totals.accepted_tokens / done.totals.draft_tokens == pytest.approx(0.7, abs=0.1)


async def test_a_recorded_text_ends_where_the_recording_does() -> None:
    text = RecordedText((tuple(range(300, 340)), tuple(range(400, 420))), VOCAB)
    async with verifier(text, FreeRun.IDLE) as address:
        done = await run(address, text, "replay", make_controller("auto"), tokens=100, seed=3)
    assert done.token_ids[:20] == tuple(range(400, 420))
    assert done.finish is FinishReason.STOP_TOKEN
    assert done.text == "".join(f" {i}" for i in range(400, 420))


async def test_the_command_lines_replay(tmp_path: Path) -> None:
    port = free_port()
    arguments = ["serve", "--backend", "replay", "--profile", "h100-8b", "--vocab", "1000", "--insecure"]
    log = tmp_path / "verifier.log"
    with serving("acespec.cloud.cli", [*arguments, "--port", str(port)], log):
        command = [sys.executable, "-m", "acespec.edge.cli", "generate", "--verifier", f"127.0.0.1:{port}"]
        command += [
            "--insecure",
            "--model",
            "replay:1000",
            "--drafter",
            "replay",
            "--seed",
            "9",
            "-m",
            "12",
            "-p",
            "hi",
        ]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    text, start = SyntheticText(1000), len("user: hi\nassistant: ")
    assert done.stdout.strip() == " ".join(str(text.token(9, p, start)) for p in range(start, start + 12))
    assert "numerics replay-synthetic-1000" in log.read_text()
