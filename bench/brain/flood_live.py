"""The flood over the real stack: edge, proxied link and verifier in one process, where one clock dates everything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

from acespec.bench.brain.flood import Ages, FloodingDrafter
from acespec.bench.brain.study import Setting
from acespec.cloud import server
from acespec.cloud.admission import Admission
from acespec.cloud.auth import Keys
from acespec.cloud.engine import EngineBackend
from acespec.cloud.host import Hosts
from acespec.cloud.load import Target
from acespec.cloud.replay.runner import ReplayRunner
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.session_host import Listener, SessionHost
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.edge.brain.controllers import make_controller
from acespec.edge.brain.tree_shape import tree_shape
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.drafters.base import Drafter, QuietDrafter
from acespec.edge.turn_request import TurnRequest
from acespec.models.replay_tokenizer import replay_tokenizer
from acespec.proto.messages import EdgeMessage
from acespec.proto.replay_profiles import find_verifier
from acespec.proto.replay_text import SyntheticText
from acespec.sim.shaper import Shaper
from acespec.sim.sockets import Address, format_address

VOCAB = 65_536
TOKENIZER = replay_tokenizer(VOCAB)
TEXT = SyntheticText(VOCAB)
PROMPT = TOKENIZER.encode("Say something long.")
LOCAL = ("127.0.0.1", 0)
TOKEN_S = 0.00001
"""A drafter that took no time at all would never let anybody else run."""


class WatchedHosts(Hosts):
    """Tells `ages` of each frame at the moment at which its session takes it."""

    ages: Ages

    def receive(
        self, now: float, principal: str, host: SessionHost | None, stream: Listener, message: EdgeMessage
    ) -> SessionHost:
        """See `Hosts.receive`."""
        self.ages.heard(now, message)
        return super().receive(now, principal, host, stream, message)


def live_ages(setting: Setting, seconds: float) -> tuple[Ages, list[float], float, list[float]]:
    """So many seconds with the flood and without drafts: the ages, when each token was there (from the first on), the
    share of the uplink's time that was used, and the tokens' times without drafts."""
    return asyncio.run(_both(setting, seconds))


async def _both(setting: Setting, seconds: float) -> tuple[Ages, list[float], float, list[float]]:
    ages = Ages(VOCAB)
    flooding = FloodingDrafter(TEXT, ages, time.monotonic, TOKEN_S)
    flooded, busy = await _run(setting, seconds, flooding, ages)
    plain, _ = await _run(setting.but(draft="fixed:0", tree="off"), seconds, QuietDrafter(), Ages(VOCAB))
    return ages, flooded, busy, plain


async def _run(setting: Setting, seconds: float, drafter: Drafter, ages: Ages) -> tuple[list[float], float]:
    step_s = find_verifier(setting.profile).step_s(1)
    request = TurnRequest(seed=setting.seed, max_tokens=max(8, round(seconds / step_s)), target_rate=setting.rate)
    spec = setting.scenario().link.spec()
    times: list[float] = []
    async with (
        _verifier(setting, ages) as address,
        Shaper(spec, listen=LOCAL, to=address) as shaper,
        Client(
            Endpoint(format_address(shaper.address), insecure=True),
            TOKENIZER,
            drafter,
            make_controller(setting.draft),
            shape=tree_shape(setting.tree),
        ) as client,
        aclosing(client.stream(PROMPT, request)) as parts,
    ):
        async for part in parts:
            if not isinstance(part, Completion):
                times += [time.monotonic()] * len(part.token_ids)
        summary = shaper.summary()
    busy = summary.up_wire * 8 / 1000 / spec.rate_up_kbps / summary.seconds
    return [when - times[0] for when in times], busy


@asynccontextmanager
async def _verifier(setting: Setting, ages: Ages) -> AsyncIterator[Address]:
    """Serves the synthetic text at the profile's speed; yields where."""
    policy = FreeRun(setting.free_run)
    runner = ReplayRunner(TEXT, find_verifier(setting.profile), vocab_size=VOCAB)
    target, limits = Target("replay", runner, TOKENIZER), Limits()
    card = target.card(limits, policy, limits.max_length - 1)
    table = TurnTable(runner, limits=limits, decoder=target.decoder, free_run=policy)
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(EngineBackend(runner, table))
        hosts = WatchedHosts(Admission(card, TOKENIZER.encode, setting.rate), backend)
        hosts.ages = ages
        serving = server.serving(card, hosts, address="127.0.0.1:0", keys=Keys(), drain_s=0.1)
        yield "127.0.0.1", await stack.enter_async_context(serving)
