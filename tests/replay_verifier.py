"""A verifier without a model in this process: the real service on loopback over replayed ids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from acespec.cloud.admission import Admission
from acespec.cloud.auth import Keys
from acespec.cloud.engine import EngineBackend
from acespec.cloud.host import Hosts
from acespec.cloud.load import Target
from acespec.cloud.replay.runner import ReplayRunner
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.server import serving
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.models.replay_tokenizer import replay_tokenizer
from acespec.proto.replay_text import ReplayText
from acespec.proto.timing_profile import TimingProfile

VOCAB = 1000
TOKENIZER = replay_tokenizer(VOCAB)
MAX_LENGTH = 4096


@asynccontextmanager
async def replay_verifier(
    text: ReplayText, *, step_s: float = 0.001, free_run: FreeRun = FreeRun.IDLE, port: int = 0
) -> AsyncIterator[str]:
    """Serve `text` at one step every `step_s`; yields the address."""
    profile = TimingProfile("test", ((1, step_s),), session_s=0.0, prefill_rate=1e6, source="made up")
    target = Target("replay", ReplayRunner(text, profile, vocab_size=VOCAB), TOKENIZER)
    limits = Limits(max_length=MAX_LENGTH)
    card = target.card(limits, free_run, MAX_LENGTH - 1)
    backend = EngineBackend(
        target.runner, TurnTable(target.runner, limits=limits, decoder=target.decoder, free_run=free_run)
    )
    async with backend:
        hosts = Hosts(Admission(card, TOKENIZER.encode, 0.0), backend)
        async with serving(card, hosts, address=f"127.0.0.1:{port}", keys=Keys(), drain_s=0.1) as bound:
            yield f"127.0.0.1:{bound}"
