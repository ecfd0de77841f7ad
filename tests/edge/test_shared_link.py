"""Many sessions over one connection: sockets, outages, and one budget for what they send."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from contextlib import AsyncExitStack, aclosing

import pytest

from acespec.edge.brain.controllers import make_controller
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.drafters.replay import REPLAY_KINDS
from acespec.edge.drafters.replay_accuracy import DepthAccuracy
from acespec.edge.link_budget import LinkBudget, Uplink
from acespec.edge.shared_link import SharedLink
from acespec.edge.turn_request import TurnRequest
from acespec.proto.errors import Unavailable
from acespec.proto.pacer import FLOOR_BYTES
from acespec.proto.replay_text import SyntheticText
from acespec.sim.breaker import Breaker
from acespec.sim.presets import find_preset
from acespec.sim.shaper import Shaper
from acespec.sim.sockets import parse_address
from tests.replay_verifier import TOKENIZER, VOCAB, replay_verifier

TEXT = SyntheticText(VOCAB)
PROMPT = TOKENIZER.encode("Say something long.")
CLIENTS = 4


def client_on(link: SharedLink) -> Client:
    drafter = REPLAY_KINDS["replay"](TEXT, DepthAccuracy((0.8,)), 0.0)
    return Client(link.endpoint, TOKENIZER, drafter, make_controller("auto"), link=link)


def expected(seed: int, tokens: int) -> tuple[int, ...]:
    return tuple(TEXT.token(seed, p, len(PROMPT)) for p in range(len(PROMPT), len(PROMPT) + tokens))


async def turn(client: Client, seed: int, tokens: int, begun: asyncio.Event | None = None) -> Completion:
    request = TurnRequest(seed=seed, max_tokens=tokens, end_ids=TOKENIZER.eos_ids)
    async with aclosing(client.stream(PROMPT, request)) as parts:
        async for part in parts:
            if isinstance(part, Completion):
                return part
            if begun is not None:
                begun.set()
    raise AssertionError("no completion")


async def test_many_sessions_need_one_connection() -> None:
    async with (
        replay_verifier(TEXT) as address,
        Breaker(address) as way,
        SharedLink(Endpoint(way.address, insecure=True)) as link,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(client_on(link)) for _ in range(CLIENTS)]
        assert (await link.describe()).vocab_size == VOCAB
        assert (await clients[0].describe()).vocab_size == VOCAB
        for again in range(2):
            seeds = range(again * CLIENTS, (again + 1) * CLIENTS)
            turns = [turn(client, seed, 120) for client, seed in zip(clients, seeds, strict=True)]
            for seed, done in zip(seeds, await asyncio.gather(*turns), strict=True):
                assert done.token_ids == expected(seed, 120)
        async with client_on(link) as late:
            assert (await turn(late, 77, 20)).token_ids == expected(77, 20)
        assert (await turn(clients[0], 78, 20)).token_ids == expected(78, 20), "who leaves breaks nothing"
        assert way.connections == 1
        assert link.connections == 1


async def test_all_sessions_survive_a_break_and_share_the_next_connection() -> None:
    async with (
        replay_verifier(TEXT, step_s=0.01) as address,
        Breaker(address) as way,
        SharedLink(Endpoint(way.address, insecure=True)) as link,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(client_on(link)) for _ in range(CLIENTS)]
        begun = [asyncio.Event() for _ in clients]
        turns = [asyncio.create_task(turn(c, seed, 250, begun[seed])) for seed, c in enumerate(clients)]
        for event in begun:
            await event.wait()
        way.reset()
        for seed, done in enumerate(await asyncio.gather(*turns)):
            assert done.token_ids == expected(seed, 250)
            assert done.reconnects >= 1
        assert way.connections == link.connections == 2


async def test_a_session_that_leaves_in_the_middle_disturbs_no_other() -> None:
    async with (
        replay_verifier(TEXT, step_s=0.01) as address,
        SharedLink(Endpoint(address, insecure=True)) as link,
        client_on(link) as stays,
        client_on(link) as leaves,
    ):
        long = asyncio.create_task(turn(stays, 1, 250))
        begun = asyncio.Event()
        short = asyncio.create_task(turn(leaves, 2, 250, begun))
        await begun.wait()
        short.cancel()
        await asyncio.gather(short, return_exceptions=True)
        done = await long
        assert done.token_ids == expected(1, 250)
        assert (done.reconnects, link.connections) == (0, 1)


async def test_over_a_narrow_link_the_queue_stays_what_it_is_with_one_session() -> None:
    """wan50 (50 Kbps, 100 ms): the floor of the pacer in the queue now and then, and not one for each session."""
    queued: list[int] = []
    async with (
        replay_verifier(TEXT, step_s=0.03) as address,
        Shaper(find_preset("wan50").spec, listen=("127.0.0.1", 0), to=parse_address(address)) as way,
        SharedLink(Endpoint("{}:{}".format(*way.address), insecure=True)) as link,
        AsyncExitStack() as stack,
    ):
        clients = [await stack.enter_async_context(client_on(link)) for _ in range(CLIENTS)]
        turns = asyncio.gather(*(turn(client, seed, 50) for seed, client in enumerate(clients)))
        while not turns.done():
            queued.append(way.state().queued_up)
            await asyncio.sleep(0.01)
        for seed, done in enumerate(await turns):
            assert done.token_ids == expected(seed, 50)
    queued.sort()
    assert queued[len(queued) * 9 // 10] < FLOOR_BYTES


async def test_a_verifier_that_comes_up_late_is_found_at_once() -> None:
    """gRPC would let the second session fail by the first one's news, for seconds."""
    async with replay_verifier(TEXT) as address:
        port = int(address.rpartition(":")[2])
    async with SharedLink(Endpoint(address, insecure=True)) as link, client_on(link) as early, client_on(link) as late:
        with pytest.raises(Unavailable):
            await turn(early, 1, 10)
        with pytest.raises(Unavailable):
            await link.describe()
        async with replay_verifier(TEXT, port=port):
            assert (await turn(late, 1, 10)).token_ids == expected(1, 10)
            assert (await turn(early, 2, 10)).token_ids == expected(2, 10)
            assert (await link.describe()).vocab_size == VOCAB


# -- the budget, in virtual time -------------------------------------------------------------------------------------

RATE = 6250.0
ONE_WAY_S = 0.05
FRAME_BYTES = 110


def worst_wait(budgets: list[LinkBudget], seconds: float = 20.0) -> tuple[float, list[int]]:
    """Greedy senders, one for each budget, on one FIFO link of 50 Kbps and 100 ms: the longest time that a frame stood
    in its queue in the second half, and what each sender got through."""
    told: list[int] = []
    uplinks = [Uplink(budget, lambda i=i: told.append(i)) for i, budget in enumerate(budgets)]  # type: ignore[misc]
    sent, free_at, worst = [0] * len(uplinks), 0.0, 0.0
    order = itertools.count()
    acks: list[tuple[float, int, int, int]] = []
    told += range(len(uplinks))
    now = 0.0
    while now < seconds:
        while told:
            i = told.pop(0)
            if uplinks[i].ready():
                uplinks[i].sent(now, FRAME_BYTES)
                sent[i] += 1
                worst = max(worst, free_at - now) if now > seconds / 2 else worst
                free_at = max(free_at, now) + FRAME_BYTES / RATE
                heapq.heappush(acks, (free_at + 2 * ONE_WAY_S, next(order), i, sent[i]))
                told.append(i)
        now, _, i, frames = heapq.heappop(acks)
        uplinks[i].acknowledged(now, frames, 0.0)
        told.append(i)
    return worst, sent


def test_together_they_keep_to_what_one_may_have_in_flight() -> None:
    alone, _ = worst_wait([LinkBudget()])
    one = LinkBudget()
    shared, sent = worst_wait([one] * 8)
    apart, _ = worst_wait([LinkBudget() for _ in range(8)])
    assert shared < alone + 2 * FRAME_BYTES / RATE
    assert apart > 3 * shared, "eight budgets of their own fill the queue"
    assert sum(sent) * FRAME_BYTES > 0.9 * RATE * 20.0, "the link is used"
    assert min(sent) > 0.5 * max(sent), "and by all of them"
    assert one.pacer.rate == pytest.approx(RATE, rel=0.1), "the rate is that of the link, not of a share"


def test_an_acknowledgement_covers_what_others_wrote_before() -> None:
    budget = LinkBudget()
    first, second = Uplink(budget, lambda: None), Uplink(budget, lambda: None)
    first.sent(0.0, 400)
    second.sent(0.1, 300)
    assert not second.ready()
    assert second.acknowledged(0.3, 1, 0.05) == pytest.approx(0.15)
    assert budget.pacer.flight_bytes == 0
    assert first.acknowledged(0.4, 1, 0.0) is None, "old news says nothing of the round trip"
    assert budget.pacer.base_rtt == pytest.approx(0.15)


def test_who_was_refused_is_told_in_turn_and_a_dead_stream_gives_its_share_back() -> None:
    told: list[str] = []
    budget = LinkBudget()
    hog, patient, late = (Uplink(budget, lambda n=n: told.append(n)) for n in ("hog", "patient", "late"))  # type: ignore[misc]
    hog.sent(0.0, FLOOR_BYTES + 1)
    assert not patient.ready()
    assert not late.ready()
    assert not patient.ready()
    hog.restart()
    assert told == ["patient", "late"]
    assert budget.pacer.flight_bytes == 0
    assert patient.ready()


def test_more_frames_than_were_sent_are_not_acknowledged() -> None:
    budget = LinkBudget()
    uplink = Uplink(budget, lambda: None)
    assert uplink.acknowledged(1.0, 3, 0.0) is None
    uplink.sent(1.0, 100)
    assert uplink.acknowledged(1.2, 9, 0.0) == pytest.approx(0.2)
