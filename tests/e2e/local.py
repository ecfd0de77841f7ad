"""The real stack in one process: tiny models on the torch backend, real gRPC on loopback, the real edge client."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from acespec.cloud.admission import Admission
from acespec.cloud.auth import Keys
from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.engine import EngineBackend
from acespec.cloud.host import Hosts
from acespec.cloud.load import Target
from acespec.cloud.runner import Block, Drawn, pages_for
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.server import serving
from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.edge.brain.controller import FixedController
from acespec.edge.brain.tree_shape import tree_shape
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.completion import Completion, TextDelta
from acespec.edge.drafters.base import Drafter, QuietDrafter
from acespec.edge.turn_request import TurnRequest
from acespec.models.tokenizer import Tokenizer
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.timing_profile import TimingProfile
from tests.tiny import ModelType, tiny_model_folder

MAX_LENGTH = 512
TRUTH_PAGES = pages_for(MAX_LENGTH)
"""The runner's last pages, which no server is told of: reference texts are computed there."""


@dataclass(frozen=True)
class Model:
    """A tiny target: its folder, its tokenizer and a runner that stays loaded."""

    name: str
    folder: Path
    tokenizer: Tokenizer
    runner: TorchRunner


class Unhurried:
    """A runner whose steps take at least `seconds`: as slow as a large model, so that drafts come in time."""

    def __init__(self, runner: TorchRunner, seconds: float) -> None:
        self._runner = runner
        self._seconds = seconds
        self.vocab_size = runner.vocab_size
        self.max_length = runner.max_length
        self.numerics_id = runner.numerics_id
        self.exact = runner.exact
        self.pages = runner.pages - TRUTH_PAGES

    def step(self, blocks: Sequence[Block]) -> list[Drawn]:
        time.sleep(self._seconds)
        return self._runner.step(blocks)

    def timing(self) -> TimingProfile:
        fastest = max(self._seconds, 0.001)
        return TimingProfile("unhurried", ((1, fastest), (64, fastest * 2)), 0.0, 64 / fastest, "made up")


@cache
def tiny_folder(model_type: ModelType, seed: int = 0) -> Path:
    """A model folder that lives as long as the test process."""
    home = TemporaryDirectory(prefix="acespec-e2e-")
    _homes.append(home)
    tie = model_type != "qwen3"
    return tiny_model_folder(home.name, model_type=model_type, seed=seed, tie=tie, padded_rows=8, max_length=MAX_LENGTH)


@cache
def tiny_model(model_type: ModelType) -> Model:
    folder = tiny_folder(model_type)
    tokenizer = Tokenizer.load(folder)
    return Model(model_type, folder, tokenizer, TorchRunner.load(folder, vocab_size=tokenizer.vocab_size))


@asynccontextmanager
async def verifier(
    model: Model,
    *,
    free_run: FreeRun = FreeRun.IDLE,
    step_s: float = 0.004,
    port: int = 0,
    drain_s: float = 0.1,
    max_sessions: int = 16,
) -> AsyncIterator[str]:
    """Serve `model`; yields its address. Servers of one model must not run steps at the same time (one runner)."""
    runner = Unhurried(model.runner, step_s)
    target = Target(model.name, runner, model.tokenizer)
    limits = Limits(max_length=runner.max_length)
    card = target.card(limits, free_run, limits.max_length - 1)
    backend = EngineBackend(runner, TurnTable(runner, limits=limits, decoder=target.decoder, free_run=free_run))
    async with backend:
        hosts = Hosts(Admission(card, model.tokenizer.encode), backend, grace_s=30.0, max_sessions=max_sessions)
        async with serving(card, hosts, address=f"127.0.0.1:{port}", keys=Keys(), drain_s=drain_s) as bound:
            yield f"127.0.0.1:{bound}"


def edge(
    address: str, model: Model, drafter: Drafter | None = None, draft_tokens: int = 0, tree: str = "off"
) -> Client:
    return Client(
        Endpoint(address, insecure=True),
        model.tokenizer,
        drafter or QuietDrafter(),
        FixedController(draft_tokens),
        shape=tree_shape(tree),
    )


async def complete(
    client: Client,
    prompt: Sequence[int],
    request: TurnRequest,
    on_tokens: Callable[[int], object] = lambda _: None,
) -> Completion:
    """Run a turn to its end; `on_tokens` hears how many tokens there are after each commit."""
    count = 0
    async with aclosing(client.stream(prompt, request)) as parts:
        async for part in parts:
            if isinstance(part, TextDelta):
                count += len(part.token_ids)
                on_tokens(count)
            else:
                return part
    raise AssertionError("the stream ended without a completion")


def one_at_a_time(
    runner: TorchRunner, prompt: Sequence[int], params: SamplingParams, seed: int, count: int, end_ids: Sequence[int]
) -> list[int]:
    """The reference of all: one token per forward pass, prompt included, no service and no drafts."""
    pages = tuple(range(runner.pages - TRUTH_PAGES, runner.pages))
    rule = DrawRule(params, seed, len(prompt))
    tokens = list(prompt)
    for position in range(len(prompt) + count - 1):
        block = Block(pages, position, (tokens[position],), tokens, 0, rule)
        drawn = runner.step([block])[0].tokens
        if position == len(tokens) - 1:
            tokens += drawn
            if drawn[0] in end_ids:
                break
    return tokens[len(prompt) :]


_homes: list[TemporaryDirectory[str]] = []
