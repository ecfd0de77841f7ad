"""A verifier in this process that replays given answers at a profile's speed, with a real model's tokenizer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from acespec.cloud.admission import Admission
from acespec.cloud.auth import Keys
from acespec.cloud.engine import EngineBackend
from acespec.cloud.host import Hosts
from acespec.cloud.load import Target
from acespec.cloud.replay.runner import ReplayRunner
from acespec.cloud.runner import Block, Drawn
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.server import serving
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.models.tokenizer import Tokenizer
from acespec.proto.timing_profile import TimingProfile

MAX_LENGTH = 16_384


@dataclass(frozen=True, slots=True)
class Answers:
    """Answer n for seed n, a `ReplayText`; the last id of each ends it."""

    texts: tuple[tuple[int, ...], ...]
    name: str = "answers"

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Tokenizer) -> Answers:
        """In the tokenizer's ids, each with its end."""
        return cls(tuple((*tokenizer.encode(text), tokenizer.eos_ids[0]) for text in texts))

    def token(self, seed: int, position: int, prompt_len: int) -> int:
        """See `ReplayText.token`."""
        text = self.texts[seed]
        return text[min(position - prompt_len, len(text) - 1)]


class PromptReader(ReplayRunner):
    """A replayed target that says when it begins to read a prompt: then the whole of it has arrived."""

    def __init__(self, text: Answers, profile: TimingProfile, vocab_size: int, on_prompt: Callable[[], None]) -> None:
        super().__init__(text, profile, vocab_size=vocab_size, max_length=MAX_LENGTH, never_idle=True)
        self._on_prompt = on_prompt

    def step(self, blocks: Sequence[Block]) -> list[Drawn]:
        """See `ReplayRunner.step`. `on_prompt` may be called more than once a prompt, and from another thread."""
        if any(block.sample_from > 0 for block in blocks):
            self._on_prompt()
        return super().step(blocks)


@asynccontextmanager
async def answering(
    answers: Answers, tokenizer: Tokenizer, profile: TimingProfile, port: int, on_prompt: Callable[[], None]
) -> AsyncIterator[None]:
    """Serve on a port of loopback until the context ends."""
    runner = PromptReader(answers, profile, tokenizer.vocab_size, on_prompt)
    target, limits = Target("answers", runner, tokenizer), Limits(max_length=MAX_LENGTH)
    card = target.card(limits, FreeRun.ALWAYS, MAX_LENGTH - 1)
    table = TurnTable(runner, limits=limits, decoder=target.decoder, free_run=FreeRun.ALWAYS)
    async with EngineBackend(runner, table) as backend:
        hosts = Hosts(Admission(card, tokenizer.encode), backend)
        async with serving(card, hosts, address=f"127.0.0.1:{port}", keys=Keys(), drain_s=0.1):
            yield
