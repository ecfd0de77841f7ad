"""One turn that is broken at a chosen point of the protocol, and how long it takes to come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from acespec.bench.outage_stack import Verifier, Way
from acespec.edge.brain.controllers import make_controller
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.drafters.replay_factory import ReplayDrafting, make_replay_drafter
from acespec.edge.turn_request import TurnRequest
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import AcespecError
from acespec.proto.replay_text import SyntheticText

POINTS = {
    "open": "while the Open goes up",
    "opened": "as soon as Opened is there, while the prompt is computed",
    "drafting": "in the middle, with drafts on their way",
    "commit": "right after a commit",
    "final": "while the final commit is made or on its way",
}
CUT = "cut"
TOKENS = 400
PROMPT_IDS = 600
WARM_UP_TOKENS = 8
OPEN_S = 0.12
"""After this long the prompt of `PROMPT_IDS` ids is on its way at 50 Kbps."""
IN_FLIGHT = 40
"""So many tokens before its end, a turn's last commit is made or on its way."""
LOOK_S = 0.002


Breaking = Callable[[], Awaitable[None]]


class TrialFailed(AcespecError):
    """A turn did not come back at all."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What was broken when, and what came of it. Times in seconds; `cut_s` is 0 where nothing was cut."""

    kind: str
    point: str
    cut_s: float
    recovery_s: float
    exact: bool
    reconnects: int
    resyncs: int
    total_s: float


@dataclass(slots=True)
class _Turn:
    """A turn under way."""

    client: Client
    seed: int
    started: float = 0.0
    tokens: int = 0
    heard_at: float = 0.0

    async def run(self, ids: list[int], max_tokens: int) -> Completion:
        """To its end."""
        request = TurnRequest(seed=self.seed, max_tokens=max_tokens)
        self.started = time.monotonic()
        async with aclosing(self.client.stream(ids, request)) as parts:
            async for part in parts:
                if isinstance(part, Completion):
                    return part
                if part.token_ids:
                    self.tokens += len(part.token_ids)
                    self.heard_at = time.monotonic()
        raise TrialFailed("the stream ended without a completion")

    @property
    def epoch(self) -> int:
        """Of the newest `Opened`."""
        return self.client.session.terms.epoch if self.client.session.terms else 0

    async def next_token(self, running: asyncio.Task[Completion], least_epoch: int) -> None:
        """Returns with the next token of that epoch or a later one, or at the turn's end."""
        await _until(lambda: self.epoch >= least_epoch or running.done())
        before = self.tokens
        await _until(lambda: self.tokens > before or running.done())

    def has_reached(self, point: str) -> bool:
        """True once the turn is where it is to be broken."""
        match point:
            case "open":
                return self.started > 0 and time.monotonic() - self.started >= OPEN_S
            case "opened":
                return self.client.opened.is_set()
            case "drafting":
                return self.tokens >= TOKENS // 4 and self.client.session.unverified > 0
            case "commit":
                return self.tokens >= TOKENS // 3 and time.monotonic() - self.heard_at <= 2 * LOOK_S
            case _:
                return self.tokens >= TOKENS - IN_FLIGHT


class Bench:
    """What all trials share: the tokenizer, and how verifiers are broken."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._text = SyntheticText(tokenizer.vocab_size)

    async def cut(self, way: Way, point: str, seconds: float, seed: int) -> Trial:
        """No signal for some seconds."""

        async def outage() -> None:
            way.cut()
            await asyncio.sleep(seconds)
            way.mend()

        return await self._trial(way, CUT, point, seconds, seed, outage)

    async def restart(self, way: Way, point: str, verifier: Verifier, seed: int) -> Trial:
        """The verifier is killed and restarted."""
        return await self._trial(way, "killed and restarted", point, 0.0, seed, verifier.kill_and_restart)

    async def move(self, way: Way, point: str, other: str, seed: int) -> Trial:
        """The connection breaks, and new ones lead to another replica."""

        async def elsewhere() -> None:
            way.switch.target = other
            way.switch.reset()

        return await self._trial(way, "moved to a replica", point, 0.0, seed, elsewhere)

    async def _trial(self, way: Way, kind: str, point: str, seconds: float, seed: int, breaking: Breaking) -> Trial:
        drafter = make_replay_drafter(ReplayDrafting(), self._tokenizer.vocab_size)
        endpoint = Endpoint(way.address, insecure=True)
        async with Client(endpoint, self._tokenizer, drafter, make_controller("auto")) as client:
            await _Turn(client, seed).run(self._prompt(seed), WARM_UP_TOKENS)
            turn = _Turn(client, seed + 1)
            running = asyncio.create_task(turn.run(self._prompt(seed + 1), TOKENS))
            await _until(lambda: turn.has_reached(point) or running.done())
            epoch = turn.epoch
            await breaking()
            mended = time.monotonic()
            # Behind a cut nothing is under way; a verifier that is gone may have left something on the link.
            await turn.next_token(running, epoch if kind == CUT else epoch + 1)
            recovery = time.monotonic() - mended
            done = await running
        return Trial(kind, point, seconds, recovery, self._is_exact(done), done.reconnects, done.resyncs, done.total_s)

    def _prompt(self, seed: int) -> list[int]:
        """Ids of bytes, another text for each seed."""
        return [1 + (31 * seed + 7 * i * i) % 250 for i in range(PROMPT_IDS)]

    def _is_exact(self, run: Completion) -> bool:
        start = run.prompt_tokens
        truth = tuple(self._text.token(run.seed, start + i, start) for i in range(TOKENS))
        return run.token_ids == truth


async def _until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - what is looked at has no event, and a look costs nothing
        await asyncio.sleep(LOOK_S)
