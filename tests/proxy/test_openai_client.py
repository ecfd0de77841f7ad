"""OpenAI's own Python client, unchanged, against the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from acespec.edge.proxy.parameters import Defaults
from acespec.edge.proxy.settings import Settings
from tests.proxy.stack import Proxy, Verifier, proxy, stack, until, verifier, words

ASK = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def served() -> AsyncIterator[tuple[Verifier, Proxy]]:
    async with stack() as both:
        yield both


def client_of(near: Proxy, **more: object) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{near.url}/v1", api_key="none", max_retries=0, **more)


async def test_a_chat_in_one_piece(served: tuple[Verifier, Proxy]) -> None:
    async with client_of(served[1]) as client:
        done = await client.chat.completions.create(model="replay", messages=ASK, max_tokens=40, seed=7)
    choice = done.choices[0]
    assert choice.message.content == words("hi", 40, 7)
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "length"
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens, done.usage.total_tokens) == (20, 40, 60)
    extra = done.model_extra or {}
    assert extra["timings"]["predicted_n"] == 40
    assert extra["timings"]["draft_n_accepted"] == extra["speculation"]["accepted_tokens"] > 0
    assert extra["speculation"]["wire"]["up_bytes"] > 0
    assert extra["speculation"]["seed"] == 7


async def test_a_chat_as_a_stream(served: tuple[Verifier, Proxy]) -> None:
    async with client_of(served[1]) as client:
        stream = await client.chat.completions.create(
            model="replay",
            messages=ASK,
            max_completion_tokens=40,
            seed=7,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == words("hi", 40, 7)
    assert len(chunks) > 5, "it came in pieces"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason] == ["length"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 40
    assert not chunks[-1].choices
    assert (chunks[-2].model_extra or {})["timings"]["predicted_n"] == 40
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_blocking_client() -> None:
    async def run() -> tuple[str, str, list[str]]:
        async with stack() as (_, near):
            return await asyncio.to_thread(ask, near.url)

    def ask(url: str) -> tuple[str, str, list[str]]:
        with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            whole = client.chat.completions.create(model="default", messages=ASK, max_tokens=9, seed=1)
            with client.chat.completions.create(
                model="default",
                messages=ASK,
                max_tokens=9,
                seed=1,
                stream=True,
            ) as stream:
                text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            return whole.choices[0].message.content or "", text, [model.id for model in client.models.list()]

    whole, streamed, models = asyncio.run(run())
    assert whole == streamed == words("hi", 9, 1)
    assert models == ["replay"]


async def test_plain_completions_of_text_and_ids(served: tuple[Verifier, Proxy]) -> None:
    async with client_of(served[1]) as client:
        text = await client.completions.create(model="replay", prompt="hello", max_tokens=5, seed=3)
        ids = await client.completions.create(model="replay", prompt=list(b"hello"), max_tokens=5, seed=3)
        both = await client.completions.create(model="replay", prompt=["hello", "bye"], max_tokens=5, seed=3, n=2)
    assert text.choices[0].text == ids.choices[0].text
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert both.choices[0].text == text.choices[0].text
    assert len({choice.text for choice in both.choices}) > 2
    assert both.usage is not None
    assert (both.usage.prompt_tokens, both.usage.completion_tokens) == (8, 20)


async def test_several_choices_whole_and_streamed(served: tuple[Verifier, Proxy]) -> None:
    async with client_of(served[1]) as client:
        asked = {"model": "replay", "messages": ASK, "max_tokens": 12, "seed": 5, "n": 3}
        whole = await client.chat.completions.create(**asked)
        texts = ["", "", ""]
        ends = []
        async for chunk in await client.chat.completions.create(**asked, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                ends += [choice.finish_reason] if choice.finish_reason else []
    assert [choice.message.content for choice in whole.choices] == texts
    assert texts[0] == words("hi", 12, 5)
    assert len(set(texts)) == 3
    assert ends == ["length"] * 3
    assert whole.usage.prompt_tokens == 20
    assert whole.usage.completion_tokens == 36


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"n": 0}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"extra_body": {"mirostat": 2}}, "mirostat"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logit_bias": {"99999": 1}}, "logit_bias"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
    ({"stop": ["x" * 300]}, "stop"),
    ({"extra_body": {"draft_model": "other"}}, "draft_model"),
    ({"messages": [{"role": "user", "content": "x" * 5000}]}, "messages"),
]


async def test_what_is_not_served_is_refused_by_name(served: tuple[Verifier, Proxy]) -> None:
    async with client_of(served[1]) as client:
        for more, param in REFUSED:
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(**{"model": "replay", "messages": ASK} | more)
            assert caught.value.param == param
            assert caught.value.type == "invalid_request_error"
            assert param in str(caught.value.message)


async def test_the_verifiers_own_refusal_names_the_parameter(served: tuple[Verifier, Proxy]) -> None:
    """The replay serves no output formats, so the word comes over the wire; a stream is refused alike."""
    form = {"type": "json_object"}
    async with client_of(served[1]) as client:
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(
                    model="replay",
                    messages=ASK,
                    response_format=form,
                    stream=stream,
                )
            assert caught.value.param == "response_format"
        done = await client.chat.completions.create(model="replay", messages=ASK, max_tokens=3)
    assert done.usage is not None
    assert done.usage.completion_tokens == 3


async def test_other_errors_have_their_classes(served: tuple[Verifier, Proxy]) -> None:
    async with client_of(served[1]) as client:
        with pytest.raises(openai.NotFoundError, match="gpt-4o"):
            await client.chat.completions.create(model="gpt-4o", messages=ASK)
        with pytest.raises(openai.InternalServerError) as caught:
            await client.embeddings.create(model="replay", input="x")
        assert caught.value.status_code == 501
        with pytest.raises(openai.NotFoundError):
            await client.get("/nothing", cast_to=object)


async def test_a_key(served: tuple[Verifier, Proxy]) -> None:
    async with proxy(served[0].address, Settings(keys=("first", "sesame"), drain_s=0.5)) as near:
        async with AsyncOpenAI(base_url=f"{near.url}/v1", api_key="wrong", max_retries=0) as stranger:
            with pytest.raises(openai.AuthenticationError):
                await stranger.models.list()
        async with AsyncOpenAI(base_url=f"{near.url}/v1", api_key="sesame", max_retries=0) as friend:
            assert [model.id async for model in friend.models.list()] == ["replay"]


async def test_leaving_a_stream_ends_the_turn_at_the_verifier() -> None:
    async with stack(step_s=0.02, drafter="none") as (far, near), client_of(near) as client:
        stream = await client.chat.completions.create(
            model="replay",
            messages=ASK,
            max_tokens=3000,
            stream=True,
        )
        count = 0
        async for _ in stream:
            count += 1
            if count == 3:
                break
        assert far.hosts.running == 1
        await stream.close()
        await until(lambda: far.hosts.running == 0, 2.0)
        await until(lambda: near.service.pool.running == 0)
        steps = far.runner.steps
        await asyncio.sleep(0.2)
        assert far.runner.steps == steps, "the verifier works for nobody"


async def test_leaving_a_plain_request_ends_the_turn_at_the_verifier() -> None:
    async with stack(step_s=0.02, drafter="none") as (far, near), client_of(near) as client:
        asking = asyncio.create_task(client.chat.completions.create(model="replay", messages=ASK, max_tokens=3000))
        await until(lambda: far.hosts.running == 1)
        asking.cancel()
        await until(lambda: far.hosts.running == 0, 2.0)
        await until(lambda: near.service.pool.running == 0)


async def test_defaults_hold_where_a_request_says_nothing() -> None:
    async with stack(Settings(defaults=Defaults(seed=4, max_tokens=6), drain_s=0.5)) as (_, near):
        async with client_of(near) as client:
            done = await client.chat.completions.create(model="replay", messages=ASK)
    assert done.choices[0].message.content == words("hi", 6, 4)


async def test_an_answer_ends_where_the_model_ends() -> None:
    async with verifier() as far, proxy(far.address) as near, client_of(near) as client:
        done = await client.chat.completions.create(
            model="replay", messages=ASK, max_tokens=10**6, seed=1, n=1, stop=[words("hi", 8, 1)[-8:]]
        )
    assert done.choices[0].finish_reason == "stop"
    assert done.choices[0].message.content == words("hi", 8, 1)[:-8]
