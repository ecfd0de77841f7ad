"""Structured output: B33 of the list of behaviours."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache

import pytest

from acespec.cloud.grammar_compiler import GrammarCompiler
from acespec.proto.messages import OutputFormat
from acespec.proto.sampling_params import SamplingParams
from tests.behaviours.engine import (
    KINDS,
    Answer,
    Ask,
    Engine,
    Nodes,
    bare_loop,
    chain,
    drafters,
    reference,
    run_alone,
    tokenizer,
)
from tests.cloud.torch_runners import text
from tests.tiny import EOS_ID

SCHEMA = {
    "x-guidance": {"whitespace_flexible": False},
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "size": {"enum": ["small", "large"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["name", "size", "tags"],
    "additionalProperties": False,
}
FORMATS = {
    "schema": OutputFormat(json_schema=json.dumps(SCHEMA)),
    "regex": OutputFormat(regex=r"[a-c]{3}-[0-9]{1,4}(yes|no)"),
}


@cache
def compiler() -> GrammarCompiler:
    return GrammarCompiler(tokenizer())


def wanted(seed: int, temperature: float = 1.0) -> Ask:
    return Ask(tuple(text(8, seed)), SamplingParams(temperature), seed, 150, (EOS_ID,))


@cache
def alone(asked: Ask, name: str) -> Answer:
    """The bare loop under a constraint of its own."""
    return bare_loop(asked, reference(), compiler()(FORMATS[name], (EOS_ID,)))


def has_its_format(name: str, tokens: Sequence[int]) -> bool:
    spelt = tokenizer().decode(list(tokens))
    if name == "regex":
        return re.fullmatch(FORMATS[name].regex, spelt) is not None
    value = json.loads(spelt)
    return set(value) == set(SCHEMA["required"]) and value["size"] in ("small", "large") and len(value["name"]) <= 5


@pytest.mark.parametrize(("kind", "temperature"), [*((kind, 1.0) for kind in KINDS), ("adversarial", 0.0)])
def test_b33_text_under_a_format_is_the_same_with_any_drafts(kind: str, temperature: float) -> None:
    """Grammar state moves by commits only: with drafts of every kind, of several formats in one batch, the text equals
    the bare loop's, parses and satisfies its schema."""
    engine = Engine()
    cases = [(wanted(seed, temperature), name) for seed in range(2) for name in FORMATS]
    for asked, name in cases:
        drafter = drafters(asked, alone(asked, name), 6)[kind]
        engine.open(asked, drafter, constraint=compiler()(FORMATS[name], (EOS_ID,)))
    engine.run()
    for (asked, name), session in zip(cases, engine.sessions.values(), strict=True):
        assert session.answer == alone(asked, name)
        assert session.tokens[-1] == EOS_ID
        assert has_its_format(name, session.tokens[:-1])


def test_b33_drafts_that_the_grammar_forbids_are_rejections_like_any_other() -> None:
    """Ends of text, special ids and brackets out of place, drafted at every depth, raise nothing and change nothing."""
    asked = wanted(3)
    truth = (*asked.prompt, *alone(asked, "schema").tokens)
    bad = [EOS_ID, 0, 1, *tokenizer().encode("}]")]

    def propose(tokens: Sequence[int]) -> Nodes:
        right = truth[len(tokens) : len(tokens) + 3]
        path = chain([*right, EOS_ID, EOS_ID, *bad])
        return [*path, *((0, token) for token in bad), *((-1, token) for token in bad)]

    engine = Engine()
    constraint = compiler()(FORMATS["schema"], (EOS_ID,))
    session = engine.open(asked, propose, constraint=constraint)
    engine.run()
    assert session.answer == alone(asked, "schema")
    assert session.totals.accepted_tokens > 0
    assert constraint.fault is None


def test_b33_the_format_is_what_shapes_the_text() -> None:
    """Without the constraint the same request does not parse: the tests above can fail."""
    session, _ = run_alone(wanted(0))
    with pytest.raises(ValueError):
        json.loads(tokenizer().decode(session.tokens))
