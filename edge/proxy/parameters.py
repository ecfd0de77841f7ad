"""What a request asks of the target: OpenAI's parameters, and those of vLLM and llama.cpp that the verifier serves."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from acespec.edge.proxy.errors import ApiError, refused
from acespec.edge.proxy.fields import Fields
from acespec.edge.run_options import SEED_BITS
from acespec.edge.turn_request import TurnRequest, as_sent
from acespec.models.tokenizer import Tokenizer
from acespec.proto.logprobs import MAX_TOP
from acespec.proto.messages import OutputFormat
from acespec.proto.sampling_params import SamplingParams

MAX_N = 128
MOST_TOKENS = 2**31 - 1
MOST_DRAFT_TOKENS = 256
WHOLE_SEED = 2**64
HARMLESS = ("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")
"""They change nothing of an answer, here as elsewhere."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a request says nothing. `max_tokens` None: up to the model's length."""

    params: SamplingParams = SamplingParams(temperature=1.0)
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    target_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request's parameters. `draft_tokens`: most unverified tokens ahead, None as the proxy was told.

    `turn.seed` is that of the first answer, `turn.max_tokens` not yet bounded by the model's length.
    """

    turn: TurnRequest
    n: int
    stream: bool
    include_usage: bool
    draft_tokens: int | None


def read_parameters(fields: Fields, defaults: Defaults, tokenizer: Tokenizer, top_logprobs: int | None) -> Asked:
    """Take all that chat and plain completions share, and refuse what is left.

    Args:
        top_logprobs: what the request asks for, read by the caller: the two APIs differ in it.

    Raises:
        ApiError: naming the parameter.
    """
    max_tokens = _max_tokens(fields, defaults)
    min_tokens = fields.integer("min_tokens", defaults.min_tokens, 0, MOST_TOKENS)
    if min_tokens > max_tokens:
        raise refused(f"min_tokens {min_tokens} is above max_tokens {max_tokens}", "min_tokens", "invalid_value")
    ignore_eos = fields.flag("ignore_eos")
    stop_ids = fields.integers("stop_token_ids", tokenizer.vocab_size)
    turn = TurnRequest(
        params=as_sent(_sampling(fields, defaults.params, tokenizer.vocab_size)),
        seed=_seed(fields, defaults.seed),
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop_ids=stop_ids,
        stop_strings=tuple(stop for stop in (fields.texts("stop") or defaults.stop) if stop),
        end_ids=(*stop_ids, *(() if ignore_eos else tokenizer.eos_ids)),
        target_rate=_target_rate(fields, defaults.target_rate),
        ignore_eos=ignore_eos,
        top_logprobs=top_logprobs,
        format=_format(fields),
    )
    n = fields.integer("n", 1, 1, MAX_N)
    stream, include_usage = _streaming(fields)
    draft_tokens = _draft_tokens(fields)
    _take_nothings(fields)
    fields.nothing_left()
    return Asked(turn, n, stream, include_usage, draft_tokens)


def chat_logprobs(fields: Fields) -> int | None:
    """`logprobs` and `top_logprobs` of a chat request: see `TurnRequest.top_logprobs`."""
    wanted = fields.flag("logprobs")
    if fields.given("top_logprobs") and not wanted:
        raise refused("top_logprobs needs logprobs: true", "top_logprobs")
    top = fields.integer("top_logprobs", 0, 0, MAX_TOP)
    return top if wanted else None


def text_logprobs(fields: Fields) -> int | None:
    """`logprobs` of a plain completion: a number."""
    if not fields.given("logprobs"):
        return None
    return fields.integer("logprobs", 0, 0, MAX_TOP)


def _sampling(fields: Fields, defaults: SamplingParams, vocab_size: int) -> SamplingParams:
    return SamplingParams(
        temperature=fields.number("temperature", defaults.temperature, 0.0, 100.0),
        top_k=max(0, fields.integer("top_k", defaults.top_k, -1, MOST_TOKENS)),
        top_p=fields.number("top_p", defaults.top_p, 0.0, 1.0),
        min_p=fields.number("min_p", defaults.min_p, 0.0, 1.0),
        repetition_penalty=fields.number("repetition_penalty", defaults.repetition_penalty, 1e-6, 1e6),
        frequency_penalty=fields.number("frequency_penalty", defaults.frequency_penalty, -1e6, 1e6),
        presence_penalty=fields.number("presence_penalty", defaults.presence_penalty, -1e6, 1e6),
        logit_bias=_logit_bias(fields.mapping("logit_bias"), vocab_size) or defaults.logit_bias,
    )


def _logit_bias(given: Mapping[str, object], vocab_size: int) -> tuple[tuple[int, float], ...]:
    biases = Fields(given, "logit_bias.")
    pairs = []
    for key in given:
        if not key.isdecimal() or int(key) >= vocab_size:
            raise refused(f"logit_bias: {key!r} is no id of the {vocab_size} of this model", "logit_bias")
        pairs.append((int(key), biases.number(key, 0.0, -100.0, 100.0)))
    return tuple(sorted(pairs))


def _seed(fields: Fields, default: int | None) -> int:
    drawn = secrets.randbits(SEED_BITS) if default is None else default
    return fields.integer("seed", drawn, -(WHOLE_SEED // 2), WHOLE_SEED - 1) % WHOLE_SEED


def _max_tokens(fields: Fields, defaults: Defaults) -> int:
    given = [name for name in ("max_completion_tokens", "max_tokens") if fields.given(name)]
    values = [fields.integer(name, 0, 1, MOST_TOKENS) for name in given]
    if len(set(values)) > 1:
        raise refused("max_tokens and max_completion_tokens differ: give one of them", "max_tokens")
    return values[0] if values else defaults.max_tokens or MOST_TOKENS


def _target_rate(fields: Fields, default: float | None) -> float | None:
    return fields.number("target_rate", 0.0, 0.0) if fields.given("target_rate") else default


def _streaming(fields: Fields) -> tuple[bool, bool]:
    stream = fields.flag("stream")
    if fields.given("stream_options") and not stream:
        raise refused("stream_options needs stream: true", "stream_options")
    options = fields.members("stream_options")
    options.ignore("include_obfuscation")
    include_usage = options.flag("include_usage")
    options.nothing_left()
    return stream, include_usage


def _draft_tokens(fields: Fields) -> int | None:
    if not fields.given("num_draft_tokens"):
        return None
    return fields.integer("num_draft_tokens", 0, 0, MOST_DRAFT_TOKENS)


def _format(fields: Fields) -> OutputFormat:
    """`response_format` of OpenAI, `grammar` of llama.cpp, and `regex`: one of them at most."""
    response = fields.members("response_format")
    kind = response.text("type", "text")
    regex, grammar = fields.text("regex"), fields.text("grammar")
    schema = _schema(response) if kind == "json_schema" else ""
    if kind not in ("text", "json_object", "json_schema"):
        raise refused(
            f"response_format.type {kind!r}: choose text, json_object or json_schema",
            "response_format",
            "invalid_value",
        )
    response.nothing_left()
    chosen = OutputFormat(json_schema=schema, json_object=kind == "json_object", regex=regex, grammar=grammar)
    if len(chosen.asked()) > 1:
        raise refused(f"{' and '.join(chosen.asked())}: choose one output format", "response_format")
    return chosen


def _schema(response: Fields) -> str:
    inner = response.members("json_schema")
    if not inner.given("schema"):
        raise _no_schema()
    schema = inner.take("schema")
    if not isinstance(schema, dict | bool):
        raise _no_schema()
    inner.ignore("name", "description", "strict")
    inner.nothing_left()
    return json.dumps(schema, ensure_ascii=False)


def _no_schema() -> ApiError:
    path = "response_format.json_schema.schema"
    return refused(f"{path} has to be a JSON schema", path, "invalid_type")


def _take_nothings(fields: Fields) -> None:
    """Members that may be there as long as they ask for nothing."""
    fields.ignore(*HARMLESS)
    fields.nothing_but("tools", [[]])
    fields.nothing_but("functions", [[]])
    fields.nothing_but("tool_choice", ["none", "auto"])
    fields.nothing_but("function_call", ["none", "auto"])
    fields.ignore("parallel_tool_calls")
    fields.nothing_but("store", [False])
    fields.nothing_but("service_tier", ["auto", "default"])
    fields.nothing_but("modalities", [["text"]])
