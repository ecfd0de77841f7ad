"""What needs a model: log probabilities, sampling parameters that matter, and drafts that change nothing."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest
from openai import AsyncOpenAI

from acespec.cloud.admission import Admission
from acespec.cloud.auth import Keys
from acespec.cloud.engine import EngineBackend
from acespec.cloud.grammar_compiler import GrammarCompiler
from acespec.cloud.host import Hosts
from acespec.cloud.load import Target
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.server import serving
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.edge.proxy.settings import Settings
from acespec.proto.sampling_params import SamplingParams
from tests.e2e.local import Model, Unhurried, one_at_a_time, tiny_model, verifier
from tests.proxy.stack import proxy

ASK = [{"role": "user", "content": "The river was low"}]


async def test_parameters_reach_the_target_and_log_probabilities_come_back() -> None:
    model = tiny_model("llama")
    tokenizer = model.tokenizer
    async with (
        verifier(model, step_s=0.001) as address,
        proxy(address, Settings(drain_s=0.5), tokenizer=tokenizer, drafter="none") as near,
        AsyncOpenAI(base_url=f"{near.url}/v1", api_key="none", max_retries=0) as client,
    ):

        async def ask(**more: object) -> str:
            done = await client.chat.completions.create(
                model="default",
                messages=ASK,
                max_tokens=12,
                seed=5,
                **more,
            )
            return str(done.choices[0].message.content)

        greedy = await ask(temperature=0)
        ids = tokenizer.encode(tokenizer.apply_chat(ASK))

        truth = one_at_a_time(model.runner, ids, SamplingParams(), 5, 12, tokenizer.eos_ids)
        assert greedy == tokenizer.decode(truth)
        drawn = await ask(temperature=1.0)
        assert drawn == await ask() != greedy, "temperature is 1 where nothing is said"
        assert await ask(temperature=1.0, extra_body={"top_k": 1}) == greedy
        assert await ask(temperature=0, logit_bias={str(truth[0]): -100}) != greedy
        assert await ask(temperature=0, frequency_penalty=50) != greedy

        whole = await client.chat.completions.create(
            model="default",
            messages=ASK,
            max_tokens=12,
            temperature=0,
            logprobs=True,
            top_logprobs=3,
        )
        content = whole.choices[0].logprobs.content
        assert bytes(byte for item in content for byte in item.bytes).decode(errors="replace") == greedy
        assert all(item.top_logprobs[0].logprob == item.logprob <= 0 for item in content)
        assert all(len(item.top_logprobs) == 3 for item in content)

        streamed = []
        async for chunk in await client.chat.completions.create(
            model="default",
            messages=ASK,
            max_tokens=12,
            temperature=0,
            logprobs=True,
            top_logprobs=3,
            stream=True,
        ):
            if chunk.choices[0].logprobs:
                streamed += chunk.choices[0].logprobs.content
        assert streamed == content

        plain = await client.completions.create(
            model="default", prompt=ids, max_tokens=12, temperature=0, logprobs=2, seed=5
        )
        old = plain.choices[0].logprobs
        assert old is not None
        assert plain.choices[0].text == greedy
        assert old.tokens == [item.token for item in content]
        assert old.token_logprobs == [item.logprob for item in content]
        assert old.text_offset is not None
        assert old.text_offset[:2] == [0, len(content[0].token)]


@asynccontextmanager
async def formatting_verifier(model: Model) -> AsyncIterator[str]:
    """One that serves output formats."""
    runner = Unhurried(model.runner, 0.001)
    target = Target("formats", runner, model.tokenizer, GrammarCompiler(model.tokenizer))
    limits = Limits(max_length=runner.max_length)
    card = target.card(limits, FreeRun.ALWAYS, limits.max_length - 1)
    table = TurnTable(runner, limits=limits, decoder=target.decoder, free_run=FreeRun.ALWAYS)
    async with (backend := EngineBackend(runner, table)):
        hosts = Hosts(Admission(card, model.tokenizer.encode, compile_format=target.compile_format), backend)
        async with serving(card, hosts, address="127.0.0.1:0", keys=Keys(), drain_s=0.1) as port:
            yield f"127.0.0.1:{port}"


SCHEMA = {
    "type": "object",
    "properties": {"yes": {"type": "boolean"}, "side": {"enum": ["left", "right"]}},
    "required": ["yes", "side"],
    "additionalProperties": False,
}


async def test_output_formats() -> None:
    model = tiny_model("llama")
    async with (
        formatting_verifier(model) as address,
        proxy(address, Settings(drain_s=0.5), tokenizer=model.tokenizer, drafter="none") as near,
        AsyncOpenAI(base_url=f"{near.url}/v1", api_key="none", max_retries=0) as client,
    ):

        async def ask(**more: object) -> str:
            done = await client.chat.completions.create(model="default", messages=ASK, max_tokens=300, seed=5, **more)
            assert done.choices[0].finish_reason == "stop"
            return str(done.choices[0].message.content)

        schema = {"type": "json_schema", "json_schema": {"name": "turn", "strict": True, "schema": SCHEMA}}
        answer = json.loads(await ask(response_format=schema))
        assert set(answer) == {"yes", "side"}
        assert answer["side"] in ("left", "right")
        assert re.fullmatch("[0-9]{4}-[0-9]{2}", await ask(extra_body={"regex": "[0-9]{4}-[0-9]{2}"}))
        assert await ask(extra_body={"grammar": 'root ::= "yes" | "no"'}) in ("yes", "no")
        with pytest.raises(openai.BadRequestError) as caught:
            await ask(extra_body={"regex": "("})
        assert caught.value.param == "regex"
        broken = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}
        with pytest.raises(openai.BadRequestError) as caught:
            await ask(response_format=broken)
        assert caught.value.param == "response_format"
