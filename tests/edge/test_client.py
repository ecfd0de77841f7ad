"""The client over real gRPC on loopback: whole answers, broken links, refusals, cancellation."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
import trustme

from acespec.edge.brain.controller import FixedController
from acespec.edge.brain.rate_controller import RateController
from acespec.edge.channel import Endpoint, channel_options, connect_timeout
from acespec.edge.client import Client
from acespec.edge.completion import Completion, TextDelta
from acespec.edge.drafters.base import Candidate, Drafter, QuietDrafter
from acespec.edge.turn_request import TurnRequest
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import (
    BY_STATUS,
    BadFrame,
    Exhausted,
    Mismatch,
    Unauthenticated,
    Unavailable,
    UnsupportedModel,
)
from acespec.proto.messages import FinishReason
from tests.drafters import AdversarialDrafter, OracleDrafter
from tests.edge.fake_cloud import FakeCloud, logprob_at
from tests.edge.fake_server import FakeServer
from tests.tiny import tiny_model_folder

PROMPT_LEN = 8


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_model_folder(tmp_path_factory.mktemp("model")))


@pytest.fixture
def truth(tokenizer: Tokenizer) -> list[int]:
    dice = random.Random(4)
    return [dice.randrange(3, tokenizer.vocab_size) for _ in range(400)]


@pytest_asyncio.fixture
async def server(truth: list[int], tokenizer: Tokenizer) -> AsyncIterator[FakeServer]:
    fake = FakeServer(FakeCloud(truth, tokenizer.vocab_size))
    await fake.start()
    yield fake
    await fake.kill()


def make_client(
    server: FakeServer, tokenizer: Tokenizer, drafter: Drafter | None = None, outage_timeout: float = 20.0
) -> Client:
    endpoint = Endpoint(server.target, insecure=True)
    return Client(endpoint, tokenizer, drafter or QuietDrafter(), RateController(), outage_timeout=outage_timeout)


async def collect(client: Client, ids: Sequence[int], request: TurnRequest) -> tuple[str, Completion]:
    shown, last = [], None
    async with aclosing(client.stream(ids, request)) as parts:
        async for part in parts:
            if isinstance(part, TextDelta):
                shown.append(part.text)
            else:
                last = part
    assert last is not None
    return "".join(shown), last


async def test_an_answer_is_whole_and_accounted_for(server: FakeServer, tokenizer: Tokenizer, truth: list[int]) -> None:
    async with make_client(server, tokenizer, OracleDrafter(truth, 0.8)) as client:
        shown, done = await collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=60, seed=5))
    answer = truth[PROMPT_LEN : PROMPT_LEN + 60]
    assert list(done.token_ids) == answer
    assert shown == done.text == tokenizer.decode(answer)
    assert done.finish is FinishReason.LENGTH
    assert (done.prompt_tokens, done.seed, done.drafter) == (PROMPT_LEN, 5, "oracle")
    assert done.totals.accepted_tokens > 20
    assert 0 < done.ttft_s <= done.total_s
    assert done.rtts
    assert all(0 < rtt < 1 for rtt in done.rtts)
    assert done.wire.down_bytes > done.wire.down_payload_bytes > 0


async def test_log_probabilities_arrive_once_each_even_over_a_cut(
    server: FakeServer, tokenizer: Tokenizer, truth: list[int]
) -> None:
    server.pace_s = 0.01
    async with make_client(server, tokenizer, OracleDrafter(truth, 0.8)) as client:
        turn = asyncio.create_task(collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=60, top_logprobs=2)))
        await server.until(partial(_further, turn, server, 25))
        await server.kill()
        await server.start()
        _, done = await turn
        _, without = await collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=5))
    assert done.reconnects
    assert done.logprobs == tuple(logprob_at(truth, PROMPT_LEN + i, 2) for i in range(60))
    assert without.logprobs is None


async def test_log_probabilities_that_do_not_fit_end_the_turn(
    server: FakeServer, tokenizer: Tokenizer, truth: list[int]
) -> None:
    server.cloud.lose_logprobs = True
    async with make_client(server, tokenizer) as client:
        with pytest.raises(BadFrame, match="log probabilities"):
            await collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=5, top_logprobs=0))


async def test_a_stop_string_among_the_first_tokens_is_shown_at_once(
    server: FakeServer, tokenizer: Tokenizer, truth: list[int]
) -> None:
    answer = truth[PROMPT_LEN : PROMPT_LEN + 40]
    stop = tokenizer.decode(answer[:6])[1:4]
    async with make_client(server, tokenizer) as client:
        request = TurnRequest(max_tokens=40, min_tokens=20, stop_strings=(stop,))
        async with aclosing(client.stream(truth[:PROMPT_LEN], request)) as parts:
            shown = [part.text async for part in parts if isinstance(part, TextDelta)]
    assert "".join(shown) == tokenizer.decode(answer)
    assert sum(map(bool, shown)) > 5, "it was not held back to the end"


async def test_turns_share_a_stream_and_send_only_what_is_new(
    server: FakeServer, tokenizer: Tokenizer, truth: list[int]
) -> None:
    async with make_client(server, tokenizer) as client:
        await collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=10))
        _, second = await collect(client, truth[:25], TurnRequest(max_tokens=10))
    assert list(second.token_ids) == truth[25:35]
    assert server.streams == 1
    assert server.cloud.appended == [truth[:PROMPT_LEN], truth[18:25]]


async def test_hostile_drafts_change_nothing(server: FakeServer, tokenizer: Tokenizer, truth: list[int]) -> None:
    async with make_client(server, tokenizer, AdversarialDrafter(truth, wild=True)) as client:
        _, done = await collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=60))
    assert list(done.token_ids) == truth[PROMPT_LEN : PROMPT_LEN + 60]


async def test_a_killed_verifier_that_comes_back_loses_and_repeats_nothing(
    server: FakeServer, tokenizer: Tokenizer, truth: list[int]
) -> None:
    server.pace_s = 0.01
    async with make_client(server, tokenizer, OracleDrafter(truth, 0.5)) as client:
        turn = asyncio.create_task(collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=150)))
        for length in (30, 80):
            await server.until(partial(_further, turn, server, length))
            await server.kill()
            await asyncio.sleep(0.1)
            server.cloud.forget = length == 80
            await server.start()
        shown, done = await turn
    assert list(done.token_ids) == truth[PROMPT_LEN : PROMPT_LEN + 150]
    assert shown == tokenizer.decode(done.token_ids)
    assert done.reconnects >= 2


def _further(turn: asyncio.Task[tuple[str, Completion]], server: FakeServer, length: int) -> bool:
    return turn.done() or len(server.cloud.tokens) > length


async def test_a_verifier_that_stays_away_is_given_up(
    server: FakeServer, tokenizer: Tokenizer, truth: list[int]
) -> None:
    server.pace_s = 0.01
    async with make_client(server, tokenizer, outage_timeout=0.5) as client:
        turn = asyncio.create_task(collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=300)))
        await server.until(lambda: len(server.cloud.tokens) > 20)
        await server.kill()
        with pytest.raises(Unavailable, match="gave up after"):
            await turn


async def test_nobody_there_is_said_at_once(tokenizer: Tokenizer) -> None:
    client = Client(Endpoint("127.0.0.1:1", insecure=True), tokenizer, QuietDrafter(), FixedController(0))
    start = time.monotonic()
    async with client:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1: connection refused"):
            await collect(client, [1, 2], TurnRequest())
    assert time.monotonic() - start < 3


@pytest.mark.parametrize("status", ["FAILED_PRECONDITION", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"])
async def test_a_refusal_keeps_its_words(server: FakeServer, tokenizer: Tokenizer, status: str) -> None:
    kind = BY_STATUS[status]
    server.cloud.refuse = kind("the reason in one line")
    async with make_client(server, tokenizer) as client:
        with pytest.raises(kind, match=r"^the reason in one line$"):
            await collect(client, [5, 6, 7], TurnRequest())
    assert kind in (Mismatch, Unauthenticated, Exhausted, BY_STATUS["INVALID_ARGUMENT"])


async def test_leaving_early_cancels_the_turn(server: FakeServer, tokenizer: Tokenizer, truth: list[int]) -> None:
    server.pace_s = 0.01
    async with make_client(server, tokenizer) as client:
        async with aclosing(client.stream(truth[:PROMPT_LEN], TurnRequest(max_tokens=300))) as parts:
            async for _ in parts:
                break
        assert not client.session.running
        assert not server.cloud.running
        assert client.session.ids == server.cloud.tokens
        _, done = await collect(client, truth[:40], TurnRequest(max_tokens=5))
    assert list(done.token_ids) == truth[40:45]
    assert server.streams == 1


async def test_cancelling_the_task_cancels_the_turn(server: FakeServer, tokenizer: Tokenizer, truth: list[int]) -> None:
    server.pace_s = 0.01
    async with make_client(server, tokenizer) as client:
        turn = asyncio.create_task(collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=300)))
        await server.until(lambda: len(server.cloud.tokens) > 20)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert not server.cloud.running


async def test_the_key_goes_up_once_per_stream(server: FakeServer, tokenizer: Tokenizer, truth: list[int]) -> None:
    endpoint = Endpoint(server.target, insecure=True, api_key="secret")
    async with Client(endpoint, tokenizer, QuietDrafter(), FixedController(0)) as client:
        await collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=3))
    assert server.authorization == "Bearer secret"


async def test_tls_with_a_given_authority(truth: list[int], tokenizer: Tokenizer, tmp_path: Path) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1", "localhost")
    fake = FakeServer(FakeCloud(truth, tokenizer.vocab_size))
    await fake.start(grpc.ssl_server_credentials([(own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes())]))
    try:
        roots = authority.cert_pem.bytes()
        async with Client(Endpoint(fake.target, False, roots), tokenizer, QuietDrafter(), FixedController(0)) as client:
            _, done = await collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=5))
        assert list(done.token_ids) == truth[PROMPT_LEN : PROMPT_LEN + 5]
        stranger = trustme.CA().cert_pem.bytes()
        async with Client(
            Endpoint(fake.target, False, stranger), tokenizer, QuietDrafter(), FixedController(0)
        ) as other:
            with pytest.raises(Unavailable, match="--tls-ca"):
                await collect(other, truth[:PROMPT_LEN], TurnRequest(max_tokens=5))
    finally:
        await fake.kill()


class SlowDrafter(OracleDrafter):
    """Takes its time; tells where it ran and what it was told."""

    def __init__(self, truth: list[int], seconds: float) -> None:
        super().__init__(truth)
        self.seconds = seconds
        self.threads: set[int] = set()
        self.told: list[int] = []
        self.closed = False

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds)
        return super().propose(path, k)

    def commit(self, tokens: Sequence[int], start: int) -> None:
        assert start == PROMPT_LEN + len(self.told)
        self.told += tokens

    def close(self) -> None:
        self.closed = True


async def test_a_slow_drafter_holds_nothing_up_and_hears_every_commit(
    server: FakeServer, tokenizer: Tokenizer, truth: list[int]
) -> None:
    drafter = SlowDrafter(truth, 0.03)
    async with make_client(server, tokenizer, drafter) as client:
        _, done = await collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=100))
    assert done.total_s < 1.5
    assert drafter.told == truth[PROMPT_LEN : PROMPT_LEN + 100]
    assert drafter.closed
    assert len(drafter.threads) == 1
    assert threading.get_ident() not in drafter.threads


class BrokenDrafter(QuietDrafter):
    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        raise UnsupportedModel("this cache cannot be trimmed")


async def test_a_broken_drafter_is_reported(server: FakeServer, tokenizer: Tokenizer, truth: list[int]) -> None:
    server.stalled = True
    async with make_client(server, tokenizer, BrokenDrafter()) as client:
        with pytest.raises(UnsupportedModel, match="trimmed"):
            await collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=100))


async def test_an_idle_client_does_not_spin(server: FakeServer, tokenizer: Tokenizer, truth: list[int]) -> None:
    server.stalled = True
    server.pace_s = 0.05
    async with make_client(server, tokenizer) as client:
        turn = asyncio.create_task(collect(client, truth[:PROMPT_LEN], TurnRequest(max_tokens=100)))
        await asyncio.sleep(0.3)
        before = time.process_time()
        await asyncio.sleep(0.5)
        assert time.process_time() - before < 0.1
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)


def test_channel_arguments_grow_with_need() -> None:
    usual, far = dict(channel_options(0.0, 3.0)), dict(channel_options(4.0, 24.0))
    assert usual["grpc.http2.bdp_probe"] == 0
    assert usual["grpc.min_reconnect_backoff_ms"] == 3000
    assert far["grpc.min_reconnect_backoff_ms"] == 24_000
    assert far["grpc.keepalive_timeout_ms"] == 12_000


def test_the_connect_timeout_is_what_the_link_needs() -> None:
    def timeouts(rtt: float, rate: float | None, tls: bool) -> list[float]:
        return [connect_timeout(attempt, rtt, rate, tls=tls) for attempt in (0, 1, 3, 9)]

    assert timeouts(0.0, None, True) == [12.0] * 4, "nothing is known: a slow link must be able to connect"
    assert timeouts(0.1, None, True) == [3.0, 6.0, 24.0, 24.0]
    assert timeouts(0.1, 6250.0, True)[0] == 3.0, "50 Kbps: a new attempt every three seconds"
    assert 21 < timeouts(0.5, 300.0, True)[0] < 30, "2.4 Kbps: a TLS handshake takes some 18 s"
    assert timeouts(0.5, 300.0, False)[0] < 6
    assert timeouts(0.5, 30.0, True)[0] == timeouts(0.5, 30.0, True)[3] > 200
