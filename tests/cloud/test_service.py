"""The verifier over real gRPC on loopback, with the toy target: refusals, isolation, fencing, clean-up."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from acespec.cloud.auth import Keys
from acespec.cloud.scheduler import FreeRun
from acespec.proto import nodes, prompt, wire
from acespec.proto.messages import (
    Cancel,
    CloudMessage,
    Commit,
    Draft,
    EdgeMessage,
    FinishReason,
    Open,
    Opened,
)
from acespec.proto.nodes import ROOT, Node
from acespec.proto.tokens import unpack_tokens
from tests.cloud.toy import ToyRunner, toy_text
from tests.cloud.toy_server import FINGERPRINT, ToyServer, toy_server

VOCAB = 64
PROMPT = [3, 1, 4, 1, 5]


class RawEdge:
    """An edge without a state machine: it writes what a test says and checks nothing."""

    def __init__(self, call: grpc.aio.StreamStreamCall[bytes, bytes], seed: int) -> None:
        self.call = call
        self.seed = seed
        self.tokens = list(PROMPT)
        self.totals = None

    async def send(self, message: EdgeMessage | bytes) -> None:
        await self.call.write(message if isinstance(message, bytes) else wire.encode_edge(message))

    async def read(self) -> CloudMessage:
        data = await self.call.read()
        if data is grpc.aio.EOF:
            raise EOFError(await self.call.code())
        assert isinstance(data, bytes)
        return wire.decode_cloud(data)

    async def run_to_end(self, shipped: dict[int, list[int]] | None = None) -> FinishReason:
        """Take commits until the final one. `shipped` maps a node id to its absolute path of tokens."""
        while True:
            commit = await self.read()
            assert isinstance(commit, Commit)
            if commit.matched is not None:
                assert shipped is not None
                self.tokens = list(shipped[commit.matched])
            self.tokens += unpack_tokens(commit.tokens, commit.length - len(self.tokens), VOCAB)
            if commit.finish is not None:
                return commit.finish
            await self.send(Draft(received=len(self.tokens), step=True))


@asynccontextmanager
async def edge(server: ToyServer, seed: int = 0, key: str | None = None) -> AsyncIterator[RawEdge]:
    async with grpc.aio.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.stream_stream("/acespec.v1.Verifier/Session")(
            metadata=(("authorization", f"Bearer {key}"),) if key else None
        )
        yield RawEdge(call, seed)
        call.cancel()


def open_frame(seed: int = 0, **changes: object) -> Open:
    base = Open(
        session_id=seed.to_bytes(16, "big"),
        epoch=0,
        fingerprint=FINGERPRINT,
        prompt_len=len(PROMPT),
        seed=seed,
        max_tokens=40,
        append=prompt.pack_ids(PROMPT, VOCAB),
        target_rate=0.0,
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


async def status_of(raw: RawEdge) -> tuple[grpc.StatusCode, str]:
    with pytest.raises((EOFError, grpc.aio.AioRpcError)):
        while True:
            await raw.read()
    return await raw.call.code(), await raw.call.details()


@pytest.mark.parametrize("policy", list(FreeRun))
async def test_eight_sessions_at_once_get_their_own_tokens(policy: FreeRun) -> None:
    async def one(server: ToyServer, seed: int) -> None:
        async with edge(server, seed) as raw:
            await raw.send(open_frame(seed))
            assert isinstance(await raw.read(), Opened)
            truth = toy_text(PROMPT, seed, VOCAB, 8)
            wrong = [*truth[:4], (truth[4] + 1) % VOCAB, 1, 2, 3]
            chain = tuple(Node(i - 1 if i else ROOT, t) for i, t in enumerate(wrong))
            await raw.send(Draft(received=len(PROMPT), nodes=nodes.pack(chain, 0, VOCAB)))
            shipped = {i: [*PROMPT, *wrong[: i + 1]] for i in range(8)}
            assert await raw.run_to_end(shipped) is FinishReason.LENGTH
            assert raw.tokens == [*PROMPT, *toy_text(PROMPT, seed, VOCAB, 40)]

    async with toy_server(ToyRunner(VOCAB), free_run=policy) as server:
        await asyncio.gather(*(one(server, seed) for seed in range(8)))
        for host in server.hosts._hosts.values():
            assert not host.session.running


@pytest.mark.parametrize(
    ("frames", "code", "words"),
    [
        ([b"\xff\xff\xff"], "INVALID_ARGUMENT", "undecodable"),
        ([b""], "INVALID_ARGUMENT", "without content"),
        ([Draft(received=0)], "INVALID_ARGUMENT", "begin with Open"),
        ([open_frame(fingerprint=b"?" * 16)], "FAILED_PRECONDITION", FINGERPRINT.hex()),
        ([open_frame(max_tokens=0)], "INVALID_ARGUMENT", "max_tokens"),
        ([open_frame(), Draft(received=5, nodes=b"\x05\xff")], "INVALID_ARGUMENT", "draft node"),
        ([open_frame(), open_frame()], "ABORTED", "epoch"),
    ],
)
async def test_bad_frames_end_their_stream_only(frames: list[EdgeMessage | bytes], code: str, words: str) -> None:
    async with toy_server(ToyRunner(VOCAB)) as server, edge(server, 1) as good, edge(server, 0) as bad:
        await good.send(open_frame(1))
        for frame in frames:
            await bad.send(frame)
        status, details = await status_of(bad)
        assert status.name == code
        assert words in details
        assert isinstance(await good.read(), Opened)
        await good.run_to_end()
        assert good.tokens[5:] == toy_text(PROMPT, 1, VOCAB, 40)


async def test_keys_are_checked_before_anything_else() -> None:
    async with toy_server(keys=Keys(["secret"])) as server:
        for key in (None, "wrong"):
            async with edge(server, key=key) as raw:
                status, details = await status_of(raw)
                assert status is grpc.StatusCode.UNAUTHENTICATED
                assert "secret" not in details
        async with edge(server, key="secret") as raw:
            await raw.send(open_frame())
            assert isinstance(await raw.read(), Opened)


async def test_a_newer_stream_fences_the_older_one_and_resumes() -> None:
    async with toy_server(ToyRunner(VOCAB)) as server, edge(server) as old, edge(server) as new:
        await old.send(open_frame())
        await old.read()
        await new.send(open_frame(epoch=1))
        assert isinstance(await new.read(), Opened)
        status, details = await status_of(old)
        assert status is grpc.StatusCode.ABORTED
        assert "newer stream" in details
        await new.run_to_end()
        assert new.tokens[5:] == toy_text(PROMPT, 0, VOCAB, 40)


async def test_a_client_that_vanishes_frees_everything_after_the_grace_period() -> None:
    runner = ToyRunner(VOCAB)
    async with toy_server(runner, grace_s=0.1) as server:
        for seed in range(5):
            async with edge(server, seed) as raw:
                await raw.send(open_frame(seed))
                await raw.send(Draft(received=5, nodes=nodes.pack([Node(ROOT, 1)], 0, VOCAB)))
                await raw.read()
        async with asyncio.timeout(10):
            while len(server.hosts) or server.backend.table.pages.in_use:
                await asyncio.sleep(0.05)


async def test_cancel_ends_the_turn_and_the_next_one_reuses_the_kv() -> None:
    runner = ToyRunner(VOCAB)
    async with toy_server(runner, free_run=FreeRun.NEVER) as server, edge(server) as raw:
        await raw.send(open_frame())
        await raw.read()
        await raw.send(Cancel())
        assert await raw.run_to_end() is FinishReason.CANCELLED
        rows = runner.rows
        await raw.send(open_frame(epoch=1, max_tokens=1))
        await raw.read()
        raw.tokens = list(PROMPT)
        assert await raw.run_to_end() is FinishReason.LENGTH
        assert runner.rows - rows <= 2, "the prompt was computed again"


async def test_full_house_is_refused_with_a_delay() -> None:
    async with toy_server(ToyRunner(VOCAB), max_sessions=1, free_run=FreeRun.NEVER) as server:
        async with edge(server, 0) as first, edge(server, 1) as second:
            await first.send(open_frame(0))
            await first.read()
            await second.send(open_frame(1))
            status, _ = await status_of(second)
            assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
            trailing = dict(await second.call.trailing_metadata() or ())
            assert int(trailing["retry-after-ms"]) > 0


async def test_stop_strings_and_eos_end_inside_an_accepted_block() -> None:
    """B25: nothing after the stop is committed or counted, wherever drafts would have gone."""
    truth = toy_text(PROMPT, 0, VOCAB, 40)
    eos = truth[6]
    cut = truth[: truth.index(eos) + 1]
    letters = "".join(chr(ord("A") + t % 26) for t in truth)
    for eos_ids, stop, reason, length in (
        ((eos,), (), FinishReason.STOP_TOKEN, len(cut)),
        ((), (letters[5:8],), FinishReason.STOP_STRING, letters.index(letters[5:8]) + 3),
    ):
        async with toy_server(ToyRunner(VOCAB), eos_ids=eos_ids) as server, edge(server) as raw:
            await raw.send(open_frame(stop_strings=stop))
            await raw.read()
            chain = tuple(Node(i - 1 if i else ROOT, t) for i, t in enumerate(truth[:16]))
            await raw.send(Draft(received=5, nodes=nodes.pack(chain, 0, VOCAB)))
            shipped = {i: [*PROMPT, *truth[: i + 1]] for i in range(16)}
            assert await raw.run_to_end(shipped) is reason
            assert raw.tokens[5:] == truth[:length]


async def test_health_reflection_and_describe() -> None:
    async with toy_server() as server, grpc.aio.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = await health.Check(health_pb2.HealthCheckRequest(service="acespec.v1.Verifier"))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        card = wire.decode_card(await channel.unary_unary("/acespec.v1.Verifier/Describe")(b""))
        assert card.model == "toy"
        assert "temperature" in card.served


async def test_shutdown_tells_the_edge_to_resume_elsewhere() -> None:
    async with toy_server(ToyRunner(VOCAB), free_run=FreeRun.NEVER) as server:
        channel = grpc.aio.insecure_channel(server.address)
        raw = RawEdge(channel.stream_stream("/acespec.v1.Verifier/Session")(), 0)
        await raw.send(open_frame())
        await raw.read()
    status, details = await status_of(raw)
    await channel.close()
    assert status is grpc.StatusCode.UNAVAILABLE
    assert "resumed" in details
