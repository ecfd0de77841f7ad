"""The proxy on a loopback port, in front of a verifier that replays a text, all in this process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

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
from acespec.edge.brain.controllers import make_controller
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.drafters.base import Drafter, QuietDrafter
from acespec.edge.drafters.replay import REPLAY_KINDS
from acespec.edge.drafters.replay_accuracy import DepthAccuracy
from acespec.edge.proxy.app import make_app
from acespec.edge.proxy.loading import Loading
from acespec.edge.proxy.metrics import Metrics
from acespec.edge.proxy.pool import ClientPool
from acespec.edge.proxy.serve import Server
from acespec.edge.proxy.service import Service
from acespec.edge.proxy.session_meter import SessionMeter
from acespec.edge.proxy.settings import Settings
from acespec.edge.shared_link import SharedLink
from acespec.models.replay_tokenizer import replay_tokenizer
from acespec.models.tokenizer import Tokenizer
from acespec.proto.replay_text import ReplayText, SyntheticText
from acespec.proto.timing_profile import TimingProfile

VOCAB = 1000
TOKENIZER = replay_tokenizer(VOCAB)
TEXT = SyntheticText(VOCAB)
MAX_LENGTH = 4096
STEP_S = 0.002


@dataclass
class Verifier:
    """A running verifier: its address, its sessions, its steps."""

    address: str
    hosts: Hosts
    runner: CountingRunner


@dataclass
class Proxy:
    """A running proxy."""

    url: str
    service: Service
    link: SharedLink
    server: Server
    clients: list[Client] = field(default_factory=list)


class CountingRunner(ReplayRunner):
    """Counts its steps."""

    steps = 0

    def step(self, blocks):
        self.steps += 1
        return super().step(blocks)


@asynccontextmanager
async def verifier(
    step_s: float = STEP_S, text: ReplayText = TEXT, *, port: int = 0, drain_s: float = 0.1
) -> AsyncIterator[Verifier]:
    profile = TimingProfile("test", ((1, step_s),), session_s=0.0, prefill_rate=1e6, source="made up")
    runner = CountingRunner(text, profile, vocab_size=VOCAB)
    target = Target("replay", runner, TOKENIZER)
    limits = Limits(max_length=MAX_LENGTH)
    card = target.card(limits, FreeRun.ALWAYS, MAX_LENGTH - 1)
    table = TurnTable(runner, limits=limits, decoder=target.decoder, free_run=FreeRun.ALWAYS)
    backend = EngineBackend(runner, table)
    async with backend:
        hosts = Hosts(Admission(card, TOKENIZER.encode, 0.0), backend)
        async with serving(card, hosts, address=f"127.0.0.1:{port}", keys=Keys(), drain_s=drain_s) as bound:
            yield Verifier(f"127.0.0.1:{bound}", hosts, runner)


@asynccontextmanager
async def proxy(
    address: str,
    settings: Settings | None = None,
    *,
    tokenizer: Tokenizer = TOKENIZER,
    drafter: str = "replay",
    on_outage: str = "wait",
    ready: bool = True,
    load: Callable[[], Tokenizer] | None = None,
) -> AsyncIterator[Proxy]:
    """Serve; `ready`: enter only once it can answer."""
    settings = settings or Settings(drain_s=0.5)
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    loading = Loading()
    async with SharedLink(Endpoint(address, insecure=True)) as link:
        clients: list[Client] = []

        def make_client(draft_tokens: int | None) -> Client:
            size = "auto" if draft_tokens is None else str(draft_tokens)
            controller = make_controller(size)
            client = Client(link.endpoint, tokenizer, make_drafter(drafter), controller, link=link, on_outage=on_outage)
            client.watch(SessionMeter(metrics, client.session, on_outage, None))
            clients.append(client)
            return client

        pool = ClientPool(make_client, max_sessions=settings.max_sessions, max_waiting=settings.max_waiting)
        metrics = Metrics(pool)
        app = make_app(pool, settings, loading, metrics)
        server = Server(app, settings, url)
        serving_task = asyncio.create_task(server.serve(sockets=[listener]))
        loading_task = asyncio.create_task(loading.run(load or (lambda: tokenizer), link.describe))
        try:
            if ready:
                await loading_task
            yield Proxy(url, app.state.service, link, server, clients)
        finally:
            server.should_exit = True
            await serving_task
            loading_task.cancel()
            await asyncio.gather(loading_task, return_exceptions=True)
            await pool.close()
            listener.close()


def make_drafter(kind: str) -> Drafter:
    return QuietDrafter() if kind == "none" else REPLAY_KINDS[kind](TEXT, DepthAccuracy((0.8,)), 0.0)


@asynccontextmanager
async def stack(
    settings: Settings | None = None, *, step_s: float = STEP_S, text: ReplayText = TEXT, drafter: str = "replay"
) -> AsyncIterator[tuple[Verifier, Proxy]]:
    async with verifier(step_s, text) as far, proxy(far.address, settings, drafter=drafter) as near:
        yield far, near


def words(prompt: str, tokens: int, seed: int) -> str:
    """What the verifier says behind a chat of one question."""
    start = len(TOKENIZER.encode(f"user: {prompt}\nassistant: "))
    return TOKENIZER.decode([TEXT.token(seed, p, start) for p in range(start, start + tokens)])


async def until(condition, seconds: float = 5.0) -> None:
    """Wait for `condition()`."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
