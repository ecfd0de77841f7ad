"""What HTTP clients see of a link that goes away."""

from __future__ import annotations

import asyncio

import httpx2
import openai
import pytest
from openai import AsyncOpenAI

from acespec.edge.proxy.settings import Settings
from tests.e2e.relay import Relay
from tests.proxy.stack import Proxy, proxy, stack, until, verifier, words

ASK = [{"role": "user", "content": "hi"}]
LONG = {"messages": ASK, "max_tokens": 200, "seed": 1, "stream": True}


def client_of(near: Proxy) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{near.url}/v1", api_key="none", max_retries=0)


async def test_comments_keep_a_stream_alive_until_the_link_is_back() -> None:
    lines: list[str] = []
    async with verifier(step_s=0.01) as far, Relay(far.address) as relay, proxy(relay.address) as near:

        async def read() -> None:
            async with httpx2.AsyncClient(timeout=30) as http:
                async with http.stream("POST", f"{near.url}/v1/chat/completions", json=LONG) as answer:
                    async for line in answer.aiter_lines():
                        lines.append(line)  # noqa: PERF401

        reading = asyncio.create_task(read())
        await until(lambda: len(lines) > 20)
        far_away, relay.target = relay.target, "127.0.0.1:1"
        relay.cut()
        await until(lambda: any(line.startswith(": waiting for the link since ") for line in lines))
        relay.target = far_away
        await asyncio.wait_for(reading, 15)
    said = [part.split('"content": "')[1].split('"')[0] for part in lines if '"content": "' in part]
    assert "".join(said) == words("hi", 200, 1), "nothing is lost or said twice"
    assert lines[-2] == "data: [DONE]"


async def test_on_outage_fail_ends_a_stream_with_an_error_object() -> None:
    async with verifier(step_s=0.01) as far, Relay(far.address) as relay:
        settings = Settings(patience_s=0.0, drain_s=0.5)
        async with proxy(relay.address, settings, on_outage="fail") as near, client_of(near) as client:
            stream = await client.chat.completions.create(model="replay", **LONG)
            with pytest.raises(openai.APIError, match="--on-outage fail"):
                async for chunk in stream:
                    if chunk.choices[0].delta.content:
                        relay.target = "127.0.0.1:1"
                        relay.cut()
            with pytest.raises(openai.InternalServerError) as caught:
                await client.chat.completions.create(model="replay", messages=ASK)
            assert caught.value.status_code == 503
            assert caught.value.type == "unavailable_error"
            shown = near.service.metrics.show().decode()
    assert 'acespec_fallback_total{mode="fail"} 1.0' in shown
    assert 'acespec_session_resumes_total{outcome="failed"} 1.0' in shown


async def test_a_request_during_an_outage_waits_for_the_link() -> None:
    async with verifier() as far, Relay(far.address) as relay, proxy(relay.address) as near:
        away, relay.target = relay.target, "127.0.0.1:1"
        relay.cut()
        async with client_of(near) as client:
            asking = asyncio.create_task(
                client.chat.completions.create(model="replay", messages=ASK, max_tokens=5, seed=1)
            )
            await asyncio.sleep(0.5)
            assert not asking.done()
            relay.target = away
            done = await asyncio.wait_for(asking, 15)
    assert done.choices[0].message.content == words("hi", 5, 1)


async def test_the_end_of_the_proxy_is_told() -> None:
    async with stack(Settings(drain_s=0.2), step_s=0.02, drafter="none") as (far, near), client_of(near) as client:
        asked = {"model": "replay", "messages": ASK, "max_tokens": 3000}
        stream = await client.chat.completions.create(**asked, stream=True)
        whole = asyncio.create_task(client.chat.completions.create(**asked))
        await until(lambda: far.hosts.running == 2)
        near.server.should_exit = True
        with pytest.raises(openai.APIError, match="shutting down"):
            async for _ in stream:
                pass
        with pytest.raises(openai.InternalServerError, match="shutting down"):
            await whole
        await until(lambda: far.hosts.running == 0)
