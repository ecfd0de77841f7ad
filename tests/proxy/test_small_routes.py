"""Health, models, metrics, tokens, keys and origins, what is not built, and errors that are nobody's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from acespec.edge.proxy.loading import Loading
from acespec.edge.proxy.settings import Settings, read_keys
from acespec.models.replay_tokenizer import replay_tokenizer
from acespec.proto.errors import Mismatch, UsageError
from tests.proxy.stack import TOKENIZER, Proxy, proxy, stack, until, verifier

ASK = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20, "seed": 1}
NAMES = (
    *("spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total"),
    *("spec_decode_num_accepted_tokens_total", "spec_decode_num_accepted_tokens_per_pos_total"),
    *("time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket"),
    *("e2e_request_latency_seconds_bucket", "num_requests_running", "num_requests_waiting", "prompt_tokens_total"),
    *("generation_tokens_total", "wire_bytes_total", "wire_bytes_per_token_bucket", "draft_length_bucket"),
    *("link_goodput_bits_per_second", "link_rtt_seconds", "verify_seconds_total", "draft_seconds_bucket"),
    *("sessions_active", "session_resumes_total", "fallback_total"),
)


@pytest.fixture
async def near() -> AsyncIterator[Proxy]:
    async with stack() as (_, near):
        yield near


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=20) as client:
        yield client


async def test_health_while_the_tokenizer_loads(http: httpx2.AsyncClient) -> None:
    gate = threading.Event()
    async with verifier() as far, proxy(far.address, ready=False, load=lambda: gate.wait() and TOKENIZER) as near:
        for path in ("/health", "/v1/health"):
            answer = await http.get(near.url + path)
            assert answer.status_code == 503
            error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
            assert answer.json() == {"error": error}
        refused = await http.post(near.url + "/v1/chat/completions", json=ASK)
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "unavailable_error"
        assert int(refused.headers["retry-after"]) > 0
        gate.set()
        await until(lambda: near.service.loading.state is None)
        answer = await http.get(near.url + "/health")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        assert (await http.post(near.url + "/v1/chat/completions", json=ASK)).status_code == 200


async def test_health_while_the_verifier_is_away(http: httpx2.AsyncClient) -> None:
    async with proxy("127.0.0.1:1", ready=False) as near:
        await until(lambda: "cannot reach" in (near.service.loading.state or ""))
        answer = await http.get(near.url + "/health")
        assert answer.status_code == 503
        assert "127.0.0.1:1" in answer.json()["error"]["message"]


async def test_another_tokenizer_is_no_matter_of_waiting() -> None:
    async with stack() as (_, near):
        with pytest.raises(Mismatch, match="--model"):
            await Loading().run(lambda: replay_tokenizer(2000), near.link.describe)


async def test_models(near: Proxy, http: httpx2.AsyncClient) -> None:
    listed = (await http.get(near.url + "/v1/models")).json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["replay"]
    assert (await http.get(near.url + "/v1/models/replay")).json() == listed["data"][0]
    assert (await http.get(near.url + "/v1/models/other")).json()["error"]["code"] == "model_not_found"


async def test_tokens_there_and_back(near: Proxy, http: httpx2.AsyncClient) -> None:
    text = "naïve 🌍 <|end|>"
    for name in ("content", "prompt"):
        told = (await http.post(near.url + "/tokenize", json={name: text})).json()
        assert told["tokens"] == TOKENIZER.encode(text)
        assert told["count"] == len(told["tokens"])
    back = (await http.post(near.url + "/detokenize", json={"tokens": told["tokens"]})).json()
    assert back["content"] == back["prompt"] == text
    chat = (await http.post(near.url + "/tokenize", json={"messages": ASK["messages"]})).json()
    assert chat["tokens"] == TOKENIZER.encode("user: hi\nassistant: ")
    wrong = await http.post(near.url + "/detokenize", json={"tokens": [5000]})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "tokens")
    assert (await http.post(near.url + "/tokenize", json={})).json()["error"]["param"] == "content"


async def test_metrics(near: Proxy, http: httpx2.AsyncClient) -> None:
    for _ in range(2):
        done = (await http.post(near.url + "/v1/chat/completions", json=ASK)).json()
    text = (await http.get(near.url + "/metrics")).text
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation and family.type != "unknown" for family in families)
    assert all(family.name.startswith("acespec_") for family in families)
    values = {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}
    names = {name[0] for name in values}
    helped = {f.name for f in families}
    for name in NAMES:
        base = f"acespec_{name}".removesuffix("_bucket").removesuffix("_total")
        assert f"acespec_{name}" in names or base in helped, name
    assert values["acespec_generation_tokens_total",] == 40
    assert values["acespec_prompt_tokens_total",] == 40
    assert values["acespec_e2e_request_latency_seconds_count",] == 2
    assert values["acespec_time_to_first_token_seconds_count",] == 2
    assert values["acespec_inter_token_latency_seconds_count",] <= 38
    assert values["acespec_sessions_active",] == 1
    assert values["acespec_num_requests_running",] == 0
    assert values["acespec_requests_total", "/v1/chat/completions", "200"] == 2
    drafted, accepted = (values[f"acespec_spec_decode_num_{w}_tokens_total",] for w in ("draft", "accepted"))
    assert drafted >= accepted >= done["speculation"]["accepted_tokens"]
    wire = done["speculation"]["wire"]
    assert values["acespec_wire_bytes_total", "up", "payload"] > wire["up_payload_bytes"]
    assert values["acespec_wire_bytes_total", "down", "framing"] > wire["down_bytes"] - wire["down_payload_bytes"]


async def test_what_is_not_built_says_so(near: Proxy, http: httpx2.AsyncClient) -> None:
    for path in ("/v1/embeddings", "/v1/responses", "/v1/audio/speech", "/api/chat", "/infill"):
        answer = await http.post(near.url + path, json={})
        assert answer.status_code == 501, path
        assert answer.headers["x-should-retry"] == "false"
        assert path in answer.json()["error"]["message"]
    nothing = await http.get(near.url + "/nothing/here")
    assert (nothing.status_code, nothing.json()["error"]["code"]) == (404, "not_found")
    wrong = await http.get(near.url + "/v1/chat/completions")
    assert wrong.status_code == 405
    assert "error" in wrong.json()


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"\xff", b'{"messages": ' + b"[" * 100_000])
async def test_a_body_that_is_no_object(near: Proxy, http: httpx2.AsyncClient, body: bytes) -> None:
    answer = await http.post(near.url + "/v1/chat/completions", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_json"


async def test_half_a_character_and_a_body_without_end(near: Proxy, http: httpx2.AsyncClient) -> None:
    half = await http.post(
        near.url + "/v1/chat/completions", content=b'{"messages": [{"role": "user", "content": "\\ud800"}]}'
    )
    assert (half.status_code, half.json()["error"]["param"]) == (400, "messages[0].content")
    long = await http.post(near.url + "/v1/completions", content=b" " * (17 << 20))
    assert long.status_code == 413


async def test_keys_and_origins(http: httpx2.AsyncClient) -> None:
    settings = Settings(keys=("sesame",), origins=("https://friend.example",), drain_s=0.5)
    async with verifier() as far, proxy(far.address, settings) as near:
        models = near.url + "/v1/models"
        key = {"authorization": "Bearer sesame"}
        assert (await http.get(near.url + "/health")).status_code == 200
        assert (await http.get(near.url + "/metrics")).status_code == 401
        assert (await http.get(models)).json()["error"]["code"] == "invalid_api_key"
        assert (await http.get(models, headers=key)).status_code == 200
        friend = await http.get(models, headers=key | {"origin": "https://friend.example"})
        assert friend.headers["access-control-allow-origin"] == "https://friend.example"
        asked = {"origin": "https://friend.example", "access-control-request-method": "POST"}
        assert (await http.options(models, headers=asked)).status_code == 200
        stranger = await http.get(models, headers=key | {"origin": "https://evil.example"})
        assert stranger.status_code == 403
        assert "--cors" in stranger.json()["error"]["message"]
        own = await http.get(models, headers=key | {"origin": near.url})
        assert own.status_code == 200
        rebound = await http.get(models, headers=key | {"host": "evil.example"})
        assert rebound.status_code == 403


def test_keys_of_a_file(tmp_path) -> None:
    file = tmp_path / "keys"
    file.write_text("# mine\none\n two # hers\n\n")
    assert read_keys("other", file) == ("one", "two")
    assert read_keys("other", None) == ("other",)
    assert read_keys(None, None) == ()
    file.write_text("# nothing\n")
    with pytest.raises(UsageError, match="holds no key"):
        read_keys(None, file)
    with pytest.raises(UsageError, match="--proxy-key-file"):
        read_keys(None, tmp_path / "absent")


async def test_a_live_stream_does_not_hold_up_the_end(http: httpx2.AsyncClient) -> None:
    async with stack() as (_, near):
        async with http.stream("GET", near.url + "/acespec/live") as live:
            async with asyncio.timeout(3):
                async for _ in live.aiter_lines():
                    near.server.should_exit = True
