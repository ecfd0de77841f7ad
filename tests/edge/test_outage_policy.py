"""What a turn does while its link is down: waits, drafts on alone, or ends."""

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
from acespec.edge.drafters.base import Drafter, QuietDrafter
from acespec.edge.outage_policy import LONE_TOKENS, OnOutage, outage_policy
from acespec.edge.turn_request import TurnRequest
from acespec.edge.view import View
from acespec.proto.errors import Unavailable, UsageError
from acespec.proto.replay_text import SyntheticText
from acespec.sim.breaker import Breaker
from tests.drafters import OracleDrafter
from tests.edge.fake_cloud import FakeCloud
from tests.edge.fake_server import FakeServer
from tests.replay_verifier import TOKENIZER, VOCAB, replay_verifier

PROMPT_LEN = 8
MAX_DRAFT = 5
MAX_NODES = 12


@pytest.fixture
def truth() -> list[int]:
    dice = random.Random(4)
    return [dice.randrange(300, VOCAB - 1) for _ in range(800)]


@pytest_asyncio.fixture
async def server(truth: list[int]) -> AsyncIterator[FakeServer]:
    fake = FakeServer(FakeCloud(truth, VOCAB, max_draft=MAX_DRAFT, max_nodes=MAX_NODES), pace_s=0.02)
    await fake.start()
    yield fake
    await fake.kill()


class Answer:
    """A turn that runs, and what it has yielded."""

    def __init__(self, client: Client, truth: list[int], max_tokens: int, prompt_len: int = PROMPT_LEN) -> None:
        self.client = client
        self.ids: list[int] = []
        self.text = ""
        self.completion: Completion | None = None
        self.task = asyncio.create_task(self._run(truth[:prompt_len], max_tokens))

    async def _run(self, prompt: list[int], max_tokens: int) -> None:
        request = TurnRequest(max_tokens=max_tokens, end_ids=TOKENIZER.eos_ids)
        async with aclosing(self.client.stream(prompt, request)) as parts:
            async for part in parts:
                if isinstance(part, TextDelta):
                    self.ids += part.token_ids
                    self.text += part.text
                else:
                    self.completion = part

    async def has(self, tokens: int) -> None:
        while len(self.ids) < tokens:
            assert not self.task.done()
            await asyncio.sleep(0.005)


def client_of(server: FakeServer, drafter: Drafter, policy: str, tree: str = "siblings:4") -> Client:
    endpoint = Endpoint(server.target, insecure=True)
    return Client(endpoint, TOKENIZER, drafter, FixedController(MAX_DRAFT), on_outage=policy, shape=tree_shape(tree))


async def settled(client: Client) -> View:
    """The view once the drafter has nothing more to do."""
    before = client.view()
    while True:
        await asyncio.sleep(0.15)
        view = client.view()
        if view.provisional == before.provisional:
            return view
        before = view


async def test_the_drafter_goes_on_alone_and_what_it_said_stays_until_it_is_decided(
    server: FakeServer, truth: list[int]
) -> None:
    heard: list[bool] = []
    async with client_of(server, OracleDrafter(truth), "draft") as client:
        client.on_link = heard.append
        answer = Answer(client, truth, 400)
        await answer.has(20)
        await server.kill()
        alone = await settled(client)
        at = PROMPT_LEN + len(answer.ids)
        assert alone.alone
        assert alone.waiting_since is not None
        assert list(alone.provisional) == truth[at : at + LONE_TOKENS]
        assert alone.draft_length == LONE_TOKENS
        assert alone.provisional_text == TOKENIZER.decode(alone.provisional)
        assert answer.text == TOKENIZER.decode(answer.ids), "nothing provisional was yielded"
        shown = [*answer.ids, *alone.provisional]
        await server.start()
        flickers = 0
        while len(answer.ids) < len(shown) and not answer.task.done():
            view = client.view()
            now = [*answer.ids, *view.provisional]
            flickers += now[: len(shown)] != shown
            assert answer.text + view.provisional_text == TOKENIZER.decode(now)
            await asyncio.sleep(0.005)
        await answer.task
    assert flickers == 0
    assert heard == [False, True]
    assert answer.ids == truth[PROMPT_LEN : PROMPT_LEN + 400]
    assert answer.completion is not None
    assert answer.completion.totals.accepted_tokens > LONE_TOKENS // 2, "what was drafted alone was shipped then"
    assert server.cloud.largest_unverified <= MAX_DRAFT
    last = client.view()
    assert (last.running, last.alone, last.provisional, last.provisional_text) == (False, False, (), "")
    assert last.committed == 400


async def test_what_turns_out_wrong_is_replaced(server: FakeServer, truth: list[int]) -> None:
    async with client_of(server, OracleDrafter(truth, 0.9), "draft", tree="on") as client:
        answer = Answer(client, truth, 300)
        await answer.has(20)
        await server.kill()
        alone = await settled(client)
        assert alone.draft_length > 5 * MAX_DRAFT
        await server.start()
        await answer.task
    assert answer.ids == truth[PROMPT_LEN : PROMPT_LEN + 300]
    assert answer.text == TOKENIZER.decode(answer.ids)
    assert server.cloud.largest_unverified <= MAX_DRAFT


async def test_alone_it_ends_where_the_answer_must(server: FakeServer, truth: list[int]) -> None:
    async with client_of(server, OracleDrafter(truth), "draft") as client:
        answer = Answer(client, truth, 60)
        await answer.has(20)
        await server.kill()
        alone = await settled(client)
        assert len(answer.ids) + len(alone.provisional) == 59, "the last token is always the target's own"
        answer.task.cancel()
        await asyncio.gather(answer.task, return_exceptions=True)
        assert client.view().waiting_since is None
        assert not client.view().alone


async def test_an_end_token_ends_the_drafting_and_is_not_shown(server: FakeServer, truth: list[int]) -> None:
    truth[100] = TOKENIZER.eos_ids[0]
    async with client_of(server, OracleDrafter(truth), "draft") as client:
        answer = Answer(client, truth, 400)
        await answer.has(20)
        await server.kill()
        alone = await settled(client)
        assert alone.provisional[-1] == TOKENIZER.eos_ids[0]
        assert answer.text + alone.provisional_text == TOKENIZER.decode(truth[PROMPT_LEN:100])
        answer.task.cancel()
        await asyncio.gather(answer.task, return_exceptions=True)


async def test_by_default_it_waits(server: FakeServer, truth: list[int]) -> None:
    async with client_of(server, OracleDrafter(truth), "wait") as client:
        answer = Answer(client, truth, 100)
        await answer.has(20)
        assert client.view().waiting_since is None
        await server.kill()
        view = await settled(client)
        assert view.waiting_since is not None
        assert not view.alone
        assert view.draft_length <= MAX_DRAFT
        await server.start()
        await answer.task
    assert answer.ids == truth[PROMPT_LEN : PROMPT_LEN + 100]


async def test_with_fail_the_turn_ends_at_once_and_the_next_one_works(server: FakeServer, truth: list[int]) -> None:
    async with client_of(server, OracleDrafter(truth), "fail") as client:
        answer = Answer(client, truth, 300)
        await answer.has(20)
        await server.kill()
        with pytest.raises(Unavailable, match="--on-outage fail"):
            await asyncio.wait_for(answer.task, 3)
        assert answer.ids == truth[PROMPT_LEN : PROMPT_LEN + len(answer.ids)]
        await server.start()
        again = Answer(client, truth, 30)
        await again.task
        assert again.ids == truth[PROMPT_LEN : PROMPT_LEN + 30]


async def test_a_silent_link_is_seen_before_it_is_given_up() -> None:
    """Nothing is reset, nothing is refused: the bytes just stay where they are."""
    text, prompt = SyntheticText(VOCAB), TOKENIZER.encode("Say something long.")
    async with replay_verifier(text, step_s=0.01) as address, Breaker(address) as way:
        endpoint = Endpoint(way.address, insecure=True)
        async with Client(endpoint, TOKENIZER, QuietDrafter(), FixedController(0)) as client:
            answer = Answer(client, prompt, 400, prompt_len=len(prompt))
            await answer.has(20)
            assert client.view().waiting_since is None
            way.cut()
            cut_at = time.monotonic()
            while client.view().waiting_since is None:
                assert time.monotonic() - cut_at < 6
                await asyncio.sleep(0.02)
            since = client.view().waiting_since
            assert since is not None
            assert cut_at - 0.5 < since < cut_at + 1.5
            way.mend()
            await answer.task
            assert way.connections == 1
    assert answer.completion is not None
    assert answer.completion.reconnects == 0
    assert answer.ids == [text.token(0, p, len(prompt)) for p in range(len(prompt), len(prompt) + 400)]


def test_policies_have_names() -> None:
    assert [outage_policy(name) for name in ("wait", "draft", "fail")] == list(OnOutage)
    with pytest.raises(UsageError, match="one of wait, draft, fail"):
        outage_policy("panic")
