"""A real verifier over the toy target, for tests: real gRPC, real engine, no model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from acespec.cloud.admission import SERVED, Admission
from acespec.cloud.auth import Keys
from acespec.cloud.engine import EngineBackend
from acespec.cloud.host import Hosts
from acespec.cloud.runner import Runner
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.server import Tls, serving
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.proto import noise
from acespec.proto.messages import PROTOCOL_VERSION, ModelCard
from tests.cloud.toy import ToyRunner

FINGERPRINT = b"toy-tokenizer-fp"


class ToyText:
    """Decodes id n to one letter, so that stop strings can be tested."""

    def push(self, ids: Sequence[int]) -> str:
        return "".join(chr(ord("A") + i % 26) for i in ids)


def toy_card(runner: Runner, free_run: FreeRun = FreeRun.IDLE, **changes: object) -> ModelCard:
    fields: dict[str, object] = {
        "model": "toy",
        "vocab_size": runner.vocab_size,
        "fingerprint": FINGERPRINT,
        "eos_ids": (),
        "max_length": runner.max_length,
        "noise_version": noise.NOISE_VERSION,
        "noise_vector": noise.test_vector(),
        "numerics_id": runner.numerics_id,
        "max_draft": 16,
        "max_nodes": 64,
        "max_prompt": runner.max_length - 1,
        "served": SERVED,
        "server_version": "test",
        "protocol_version": PROTOCOL_VERSION,
        "exact": True,
        "free_run": free_run.value,
    }
    return ModelCard(**fields | changes)  # type: ignore[arg-type]


def encode_nothing(text: str) -> list[int]:
    return [ord(c) % 26 for c in text]


def toy_admission(card: ModelCard) -> Admission:
    return Admission(card, encode_nothing)


@dataclass(frozen=True)
class ToyServer:
    address: str
    runner: Runner
    backend: EngineBackend
    hosts: Hosts


@asynccontextmanager
async def toy_server(
    runner: Runner | None = None,
    *,
    free_run: FreeRun = FreeRun.IDLE,
    keys: Keys | None = None,
    tls: Tls | None = None,
    grace_s: float = 30.0,
    max_sessions: int = 16,
    eos_ids: tuple[int, ...] = (),
    port: int = 0,
    drain_s: float = 0.2,
    max_rows: int = 64,
) -> AsyncIterator[ToyServer]:
    runner = runner or ToyRunner()
    card = toy_card(runner, free_run, eos_ids=eos_ids)
    limits = Limits(max_nodes=card.max_nodes, max_length=runner.max_length)
    backend = EngineBackend(
        runner, TurnTable(runner, limits=limits, decoder=ToyText, free_run=free_run, max_rows=max_rows)
    )
    async with backend:
        hosts = Hosts(toy_admission(card), backend, grace_s=grace_s, max_sessions=max_sessions)
        async with serving(
            card, hosts, address=f"127.0.0.1:{port}", keys=keys or Keys(), tls=tls, reflection=True, drain_s=drain_s
        ) as bound:
            yield ToyServer(f"127.0.0.1:{bound}", runner, backend, hosts)
