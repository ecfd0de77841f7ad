"""What can be shown of a session while it runs, and what of it is true."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
import pytest_asyncio

from acespec.edge.brain.controller import FixedController
from acespec.edge.brain.tree_shape import tree_shape
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.completion import Completion, TextDelta
from acespec.edge.drafters.base import QuietDrafter
from acespec.edge.turn_request import TurnRequest
from acespec.edge.view import View
from acespec.models.tokenizer import Tokenizer
from tests.drafters import OracleDrafter
from tests.edge.fake_cloud import FakeCloud
from tests.edge.fake_server import FakeServer
from tests.tiny import tiny_model_folder

PROMPT_LEN = 8
TEXT = "Say 🙂 or 👩‍👩‍👧‍👦: 今日は、天気がいい。Ein Löffel; où est la gare? " * 6


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_model_folder(tmp_path_factory.mktemp("model")))


@pytest.fixture
def truth(tokenizer: Tokenizer) -> list[int]:
    return tokenizer.encode("x" * PROMPT_LEN)[:PROMPT_LEN] + tokenizer.encode(TEXT)


@pytest_asyncio.fixture
async def server(truth: list[int], tokenizer: Tokenizer) -> AsyncIterator[FakeServer]:
    fake = FakeServer(FakeCloud(truth, tokenizer.vocab_size, random.Random(5)), pace_s=0.005)
    await fake.start()
    yield fake
    await fake.kill()


async def test_before_the_first_turn_there_is_nothing_to_show(server: FakeServer, tokenizer: Tokenizer) -> None:
    async with Client(Endpoint(server.target, insecure=True), tokenizer, QuietDrafter(), FixedController(0)) as client:
        assert client.view() == View()


async def test_shown_and_dimmed_text_together_are_the_text(
    server: FakeServer, tokenizer: Tokenizer, truth: list[int]
) -> None:
    """With drafts that are right, whenever one looks; characters are split over tokens and commits."""
    answer = len(truth) - PROMPT_LEN - 1
    whole = tokenizer.decode(truth[PROMPT_LEN : PROMPT_LEN + answer])
    views: list[View] = []
    shown: list[str] = []
    endpoint = Endpoint(server.target, insecure=True)
    async with Client(
        endpoint, tokenizer, OracleDrafter(truth), FixedController(6), shape=tree_shape("siblings:4")
    ) as client:

        async def look() -> None:
            while True:
                views.append(client.view())
                assert whole.startswith("".join(shown) + views[-1].provisional_text)
                await asyncio.sleep(0.003)

        watching = asyncio.create_task(look())
        done: Completion | None = None
        async with aclosing(client.stream(truth[:PROMPT_LEN], TurnRequest(max_tokens=answer))) as parts:
            async for part in parts:
                if isinstance(part, TextDelta):
                    shown.append(part.text)
                else:
                    done = part
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        last = client.view()
    assert done is not None
    assert "".join(shown) == done.text == whole
    assert any(view.provisional_text for view in views)
    assert any(view.draft_length == 6 for view in views)
    busy = [view for view in views if view.committed > 20]
    assert all(view.running and view.waiting_since is None and not view.alone for view in busy[:-1])
    assert all(view.rtt_ms is not None and 0 < view.rtt_ms < 1000 for view in busy)
    assert all(view.link_kbps is not None and view.link_kbps > 0 for view in busy)
    assert not last.running
    assert last.committed == answer
    assert last.acceptance_length is not None
    assert last.acceptance_length > 1
    assert last.bytes_per_token == pytest.approx(done.bytes_per_token, rel=0.25)
    assert 0 < last.up_bytes <= done.wire.up_bytes
    assert 0 < last.down_bytes <= done.wire.down_bytes


async def test_figures_are_of_the_newest_turn(server: FakeServer, tokenizer: Tokenizer, truth: list[int]) -> None:
    endpoint = Endpoint(server.target, insecure=True)
    async with Client(endpoint, tokenizer, QuietDrafter(), FixedController(0)) as client:
        for tokens in (60, 5):
            async with aclosing(client.stream(truth[:PROMPT_LEN], TurnRequest(max_tokens=tokens))) as parts:
                async for _ in parts:
                    pass
            view = client.view()
            assert view.committed == tokens
            assert view.acceptance_length == 0
        assert view.up_bytes < 1500


async def test_looking_changes_no_count_and_takes_no_time(
    server: FakeServer, tokenizer: Tokenizer, truth: list[int]
) -> None:
    server.pace_s = 0.05
    endpoint = Endpoint(server.target, insecure=True)
    async with (
        Client(endpoint, tokenizer, OracleDrafter(truth), FixedController(8)) as client,
        aclosing(client.stream(truth[:PROMPT_LEN], TurnRequest(max_tokens=200))) as parts,
    ):
        async for _ in parts:
            break
        await asyncio.sleep(0.1)
        before = client.session.wire_so_far
        start = time.perf_counter()
        views = [client.view() for _ in range(200)]
        assert (time.perf_counter() - start) / 200 < 0.002
        assert client.session.wire_so_far == before
        assert len({view.provisional for view in views}) == 1


async def test_what_was_committed_but_not_taken_yet_is_shown_as_provisional(
    server: FakeServer, tokenizer: Tokenizer, truth: list[int]
) -> None:
    """A slow reader sees no gap between what he has and what is dimmed behind it."""
    endpoint = Endpoint(server.target, insecure=True)
    async with (
        Client(endpoint, tokenizer, QuietDrafter(), FixedController(0)) as client,
        aclosing(client.stream(truth[:PROMPT_LEN], TurnRequest(max_tokens=200))) as parts,
    ):
        async for part in parts:
            assert isinstance(part, TextDelta)
            await asyncio.sleep(0.15)
            view = client.view()
            at = PROMPT_LEN + len(part.token_ids)
            assert len(view.provisional) > 5
            assert view.draft_length == 0
            assert list(view.provisional) == truth[at : at + len(view.provisional)]
            break
