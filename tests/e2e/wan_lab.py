"""Both ends of the product around a proxied narrow link in one process, where one monotonic clock dates everything.

No model: the verifier replays a text. The settings under test are the product's own, or gRPC's defaults in their place.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import grpc.aio
import pytest

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
from acespec.edge.channel import SESSION_METHOD, Endpoint
from acespec.models.replay_tokenizer import replay_tokenizer
from acespec.proto import nodes, wire
from acespec.proto.messages import Draft, EdgeMessage, Open, Opened
from acespec.proto.replay_text import SyntheticText
from acespec.proto.timing_profile import TimingProfile
from acespec.sim.shaper import Shaper
from acespec.sim.sockets import Address, format_address
from acespec.sim.units import SECOND
from tests.e2e.raw_edge import Call, open_frame

VOCAB = 65_536
TOKENIZER = replay_tokenizer(VOCAB)
TEXT = SyntheticText(VOCAB)
PROMPT = TOKENIZER.encode("Say something long.")


class PlainEndpoint(Endpoint):
    """An edge that leaves gRPC as it is."""

    def connect(self, attempt: int = 0, rtt: float = 0.0, rate: float | None = None) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.target, options=[("grpc.use_local_subchannel_pool", 1)])


@dataclass(frozen=True)
class Settings:
    """What both ends tell gRPC."""

    name: str
    endpoint: type[Endpoint]
    server_options: tuple[tuple[str, int], ...]

    def reach(self, address: Address) -> Endpoint:
        return self.endpoint(format_address(address), insecure=True)


OURS = Settings("ours", Endpoint, server.CHANNEL_OPTIONS)
GRPCS_OWN = Settings("grpc", PlainEndpoint, ())


class Ages:
    """How old drafts are when the verifier has them. A guess's token id is its number, so that it can be recognised."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._made: list[float] = []

    def make(self) -> int:
        """A new guess, made now."""
        self._made.append(time.monotonic())
        return len(self._made) - 1

    def arrived(self, now: float, tokens: list[int]) -> None:
        self.seconds += [now - self._made[token] for token in tokens]


class WatchedHosts(Hosts):
    """Tells `ages` of every draft at the moment at which its session takes it."""

    ages: Ages | None = None
    heard = 0
    codec = 0

    def receive(
        self, now: float, principal: str, host: SessionHost | None, stream: Listener, message: EdgeMessage
    ) -> SessionHost:
        if self.ages is not None and isinstance(message, Open):
            self.codec = message.codec
        if self.ages is not None and isinstance(message, Draft) and message.nodes:
            found = nodes.unpack(message.nodes, self.heard, VOCAB, Limits().max_nodes, self.codec)
            self.heard += len(found)
            self.ages.arrived(now, [node.token for node in found])
        return super().receive(now, principal, host, stream, message)


@asynccontextmanager
async def verifier(
    step_s: float, free_run: FreeRun, settings: Settings = OURS, ages: Ages | None = None
) -> AsyncIterator[Address]:
    """Serves `TEXT` with steps of `step_s`; yields where. Must not be entered while another one is being entered."""
    profile = TimingProfile("test", ((1, step_s),), session_s=0.0, prefill_rate=1e6, source="made up")
    target = Target("replay", ReplayRunner(TEXT, profile, vocab_size=VOCAB), TOKENIZER)
    limits = Limits()
    card = target.card(limits, free_run, limits.max_length - 1)
    table = TurnTable(target.runner, limits=limits, decoder=target.decoder, free_run=free_run)
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(EngineBackend(target.runner, table))
        hosts = WatchedHosts(Admission(card, TOKENIZER.encode, 0.0), backend)
        hosts.ages = ages
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server, "CHANNEL_OPTIONS", settings.server_options)
            serving = server.serving(card, hosts, address="127.0.0.1:0", keys=Keys(), drain_s=0.1)
            port = await stack.enter_async_context(serving)
        yield "127.0.0.1", port


@asynccontextmanager
async def opened_stream(shaper: Shaper, settings: Settings, number: int = 0) -> AsyncIterator[Call]:
    """A stream over the link whose turn was opened, on a channel of its own."""
    async with settings.reach(shaper.address).connect() as channel:
        call: Call = channel.stream_stream(SESSION_METHOD)()
        opening = open_frame(TOKENIZER, PROMPT, number, target_rate=0.0)
        await call.write(wire.encode_edge(opening))
        assert isinstance(wire.decode_cloud(await read(call)), Opened)
        yield call
        call.cancel()


async def read(call: Call) -> bytes:
    """The next frame; there must be one."""
    data = await call.read()
    assert isinstance(data, bytes)
    return data


def moment(shaper: Shaper, seconds: float) -> float:
    """When the link's own clock reads `seconds`, by the monotonic clock."""
    return time.monotonic() + seconds - shaper.state().now / SECOND
