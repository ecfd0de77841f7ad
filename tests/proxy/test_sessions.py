"""Which session a request gets, what goes up for it, and on how many connections."""

from __future__ import annotations

import asyncio

import openai
import pytest
from openai import AsyncOpenAI

from acespec.edge.proxy.settings import Settings
from tests.e2e.relay import Relay
from tests.proxy.stack import Proxy, proxy, stack, until, verifier, words


def client_of(near: Proxy) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{near.url}/v1", api_key="none", max_retries=0)


async def ask(
    client: AsyncOpenAI, messages: list[dict[str, str]], tokens: int = 30, **more: object
) -> dict[str, object]:
    done = await client.chat.completions.create(
        model="replay",
        messages=messages,
        max_tokens=tokens,
        seed=1,
        **more,
    )
    messages.append({"role": "assistant", "content": done.choices[0].message.content})
    return done.model_extra | {"usage": done.usage, "text": done.choices[0].message.content}


def up_payload(reply: dict[str, object]) -> int:
    return reply["speculation"]["wire"]["up_payload_bytes"]


async def test_a_second_turn_sends_up_what_is_new() -> None:
    """Drafts off, so that what goes up is the prompt and acknowledgements."""
    async with stack(drafter="none") as (_, near), client_of(near) as client:
        messages = [{"role": "user", "content": "".join(f"{n * 7919 % 1000} " for n in range(500))}]
        first = await ask(client, messages, 5)
        sizes = []
        for number in range(4):
            messages.append({"role": "user", "content": f"and {number}?"})
            sizes.append(up_payload(await ask(client, messages, 5)))
        assert len(near.clients) == 1
    assert up_payload(first) > 700
    assert max(sizes) < 200, "the history went up again"


async def test_conversations_that_take_turns_keep_their_sessions() -> None:
    async with stack(drafter="none") as (_, near), client_of(near) as client:
        talks = [[{"role": "user", "content": f"{letter * 600}?"}] for letter in "xyz"]
        for talk in talks:
            await ask(client, talk, 5)
        for _ in range(2):
            for talk in talks:
                talk.append({"role": "user", "content": "go on"})
                assert up_payload(await ask(client, talk, 5)) < 150
        assert len(near.clients) == 3
        assert near.service.pool.sessions == 3


async def test_what_another_session_has_sent_does_not_go_up_again() -> None:
    text = "".join(f"{n * 7919 % 1000} " for n in range(500))
    async with stack(drafter="none", step_s=0.02) as (_, near), client_of(near) as client:
        slow = asyncio.create_task(
            ask(client, [{"role": "system", "content": text}, {"role": "user", "content": "a"}], 60)
        )
        await until(lambda: any(c.opened.is_set() for c in near.clients))
        other = await ask(client, [{"role": "system", "content": text}, {"role": "user", "content": "b"}], 5)
        await slow
        assert len(near.clients) == 2
    assert up_payload(other) < 200


async def test_many_at_once_share_one_connection() -> None:
    async with verifier() as far, Relay(far.address) as relay:
        async with proxy(relay.address, Settings(max_sessions=8, drain_s=0.5)) as near, client_of(near) as client:
            prompts = [f"question {n}" for n in range(8)]
            replies = await asyncio.gather(*(ask(client, [{"role": "user", "content": p}], 40) for p in prompts))
            assert [reply["text"] for reply in replies] == [words(p, 40, 1) for p in prompts]
            assert len(near.clients) == 8
            assert near.link.connections == 1
            assert relay.connections == 1, "TCP connections to the verifier"


async def test_who_finds_no_session_waits_and_who_finds_no_place_is_told() -> None:
    async with stack(Settings(max_sessions=2, max_waiting=3, drain_s=0.5), step_s=0.01) as (far, near):
        async with client_of(near) as client:
            waves = [asyncio.create_task(ask(client, [{"role": "user", "content": f"q{n}"}], 40)) for n in range(5)]
            await until(lambda: near.service.pool.waiting == 3)
            assert far.hosts.running <= 2
            with pytest.raises(openai.RateLimitError, match="--max-sessions"):
                await ask(client, [{"role": "user", "content": "one too many"}])
            done = await asyncio.gather(*waves)
            assert [each["text"] for each in done] == [words(f"q{n}", 40, 1) for n in range(5)]
            assert near.service.pool.sessions == 2


async def test_a_request_that_leaves_the_queue_takes_no_session() -> None:
    async with stack(Settings(max_sessions=1, drain_s=0.5), step_s=0.01) as (_, near), client_of(near) as client:
        first = asyncio.create_task(ask(client, [{"role": "user", "content": "a"}], 60))
        await until(lambda: near.service.pool.running == 1)
        second = asyncio.create_task(ask(client, [{"role": "user", "content": "b"}], 60))
        await until(lambda: near.service.pool.waiting == 1)
        second.cancel()
        await until(lambda: near.service.pool.waiting == 0)
        assert (await first)["text"] == words("a", 60, 1)
        assert (await ask(client, [{"role": "user", "content": "c"}], 10))["text"] == words("c", 10, 1)


async def test_a_request_may_say_how_far_to_draft() -> None:
    async with stack(step_s=0.01) as (_, near), client_of(near) as client:
        off = await ask(client, [{"role": "user", "content": "a"}], 30, extra_body={"num_draft_tokens": 0})
        on = await ask(client, [{"role": "user", "content": "a"}], 30, extra_body={"num_draft_tokens": 6})
    assert off["speculation"]["draft_tokens"] == 0
    assert on["speculation"]["draft_tokens"] > 0
    assert off["text"] == on["text"] == words("a", 30, 1)
