"""Structured output: whatever is drawn under a format has it, at any seed and temperature and with any drafts (B33)."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.grammar import GrammarConstraint
from acespec.cloud.grammar_compiler import MAX_FORMAT_BYTES, GrammarCompiler, missing_library
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import Exhausted, InvalidRequest
from acespec.proto.messages import OutputFormat
from acespec.proto.sampling_params import SamplingParams
from tests.cloud.rows import drafted, plain
from tests.tiny import EOS_ID, write_tiny_tokenizer

SCHEMA = {
    "x-guidance": {"whitespace_flexible": False},
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "size": {"enum": ["small", "large"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["name", "size", "count", "tags"],
    "additionalProperties": False,
}
PROMPT = [3, 4, 5]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tiny_tokenizer(folder)
    (folder / "config.json").write_text(json.dumps({"eos_token_id": EOS_ID}))
    return Tokenizer.load(folder)


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(tokenizer)


def rule(constraint: GrammarConstraint, temperature: float = 1.0, seed: int = 1) -> DrawRule:
    return DrawRule(SamplingParams(temperature=temperature), seed, len(PROMPT), constraint=constraint)


def fits(value: object) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"name", "size", "count", "tags"}
        and isinstance(value["name"], str)
        and len(value["name"]) <= 6
        and value["size"] in ("small", "large")
        and type(value["count"]) is int
        and 0 <= value["count"] <= 99
        and isinstance(value["tags"], list)
        and len(value["tags"]) <= 2
        and all(isinstance(tag, bool) for tag in value["tags"])
    )


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 5.0])
def test_a_text_under_a_schema_always_parses_and_satisfies_it(
    tokenizer: Tokenizer, compiler: GrammarCompiler, temperature: float
) -> None:
    made = set()
    for seed in range(12):
        constraint = compiler(OutputFormat(json_schema=json.dumps(SCHEMA)), (EOS_ID,))
        prompt = [*PROMPT[:2], 5 + seed]
        ids = plain(prompt, rule(constraint, temperature, seed), tokenizer.vocab_size, 200, (EOS_ID,))
        assert ids[-1] == EOS_ID
        text = tokenizer.decode(ids)
        assert fits(json.loads(text)), text
        made.add(text)
    assert len(made) == 12, "a constraint leaves room"


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), length=st.integers(1, 9), right=st.floats(0, 1))
def test_drafts_of_any_length_and_quality_change_no_token(
    tokenizer: Tokenizer, compiler: GrammarCompiler, seed: int, length: int, right: float
) -> None:
    wanted = OutputFormat(json_schema=json.dumps(SCHEMA))
    vocab = tokenizer.vocab_size
    truth = plain(PROMPT, rule(compiler(wanted, (EOS_ID,)), 1.0, seed), vocab, 200, (EOS_ID,))
    dice = random.Random(seed)

    class Drafts(Sequence[Sequence[int]]):
        """Guesses at what follows what is committed so far; some right, some arbitrary, ends of text among them."""

        def __init__(self) -> None:
            self.done = 0

        def __len__(self) -> int:
            return 10**9

        def __getitem__(self, _: object) -> list[int]:  # type: ignore[override]
            return [t if dice.random() < right else dice.randrange(vocab) for t in truth[dice.randrange(len(truth)) :]][
                :length
            ]

    constraint = compiler(wanted, (EOS_ID,))
    assert drafted(PROMPT, rule(constraint, 1.0, seed), vocab, 200, Drafts(), (EOS_ID,)) == truth
    perfect = compiler(wanted, (EOS_ID,))
    assert drafted(PROMPT, rule(perfect, 1.0, seed), vocab, 200, [truth, truth[1:3]], (EOS_ID,)) == truth


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_allowed_is_a_function_of_the_prefix_alone(tokenizer: Tokenizer, compiler: GrammarCompiler, seed: int) -> None:
    """However the matcher was moved before: on, back, across, beyond an end, through what the grammar forbids."""
    wanted = OutputFormat(json_schema=json.dumps(SCHEMA))
    vocab = tokenizer.vocab_size
    truth = plain(PROMPT, rule(compiler(wanted, (EOS_ID,)), 1.0, seed), vocab, 200, (EOS_ID,))
    dice = random.Random(seed)
    asked = compiler(wanted, (EOS_ID,))
    for _ in range(12):
        prefix = truth[: dice.randint(0, len(truth))] + [
            dice.randrange(vocab) for _ in range(dice.choice([0, 0, 1, 3]))
        ]
        mask = asked.allowed(prefix)
        assert (mask == compiler(wanted, (EOS_ID,)).allowed(tuple(prefix))).all()
        assert mask.any()
        assert asked.fault is None


def test_where_nothing_else_can_follow_only_the_ends_may(tokenizer: Tokenizer, compiler: GrammarCompiler) -> None:
    (x,) = tokenizer.encode("x")
    constraint = compiler(OutputFormat(regex="xx?"), (EOS_ID, 77))
    assert np.flatnonzero(constraint.allowed([])).tolist() == [x]
    assert set(np.flatnonzero(constraint.allowed([x]))) == {x, EOS_ID, 77}
    assert np.flatnonzero(constraint.allowed([x, x])).tolist() == [EOS_ID, 77]
    assert np.flatnonzero(constraint.allowed([x, x, EOS_ID])).tolist() == [EOS_ID, 77]
    assert np.flatnonzero(constraint.allowed([x, 9])).tolist() == [EOS_ID, 77], "a text that has left the grammar ends"
    assert set(np.flatnonzero(constraint.allowed([x]))) == {x, EOS_ID, 77}


def test_control_tokens_and_ids_beyond_the_vocabulary_are_never_allowed(
    tokenizer: Tokenizer, compiler: GrammarCompiler
) -> None:
    mask = compiler(OutputFormat(regex=r"(.|\n)*"), (EOS_ID,)).allowed([])
    assert mask.shape == (tokenizer.vocab_size,)
    assert mask.sum() > tokenizer.vocab_size / 2
    assert np.flatnonzero(mask[:3]).tolist() == [EOS_ID]


@pytest.mark.parametrize("pattern", [r"[a-c]{3}-\d{1,4}", r"(yes|no|maybe)", r"é+x"])
def test_a_text_under_a_regex_matches_it(tokenizer: Tokenizer, compiler: GrammarCompiler, pattern: str) -> None:
    for seed in range(5):
        constraint = compiler(OutputFormat(regex=pattern), (EOS_ID,))
        ids = plain(PROMPT, rule(constraint, 1.0, seed), tokenizer.vocab_size, 300, (EOS_ID,))
        assert re.fullmatch(pattern, tokenizer.decode(ids)), tokenizer.decode(ids)


@pytest.mark.parametrize(
    "grammar",
    ['start: greeting " " NAME\ngreeting: "hi" | "bye"\nNAME: /[a-z]{1,5}/', 'root ::= ("hi" | "bye") " " [a-z]{1,5}'],
    ids=["lark", "gbnf"],
)
def test_both_notations_of_grammars_are_read(tokenizer: Tokenizer, compiler: GrammarCompiler, grammar: str) -> None:
    ids = plain(PROMPT, rule(compiler(OutputFormat(grammar=grammar), (EOS_ID,))), tokenizer.vocab_size, 50, (EOS_ID,))
    assert re.fullmatch("(hi|bye) [a-z]{1,5}", tokenizer.decode(ids))


def test_any_object_is_an_object(tokenizer: Tokenizer, compiler: GrammarCompiler) -> None:
    constraint = compiler(OutputFormat(json_object=True), (EOS_ID,))
    assert [tokenizer.decode([i])[:1] for i in np.flatnonzero(constraint.allowed([]))] == ["{"] * int(
        constraint.allowed([]).sum()
    )
    for text in ('{"a": [1, {"b": null}], "c": "x"}', "{}"):
        assert constraint.allowed(tokenizer.encode(text))[EOS_ID], text
        assert not constraint.allowed(tokenizer.encode(text)[:-1])[EOS_ID]


def test_a_ban_on_ends_does_not_outlast_the_grammar(tokenizer: Tokenizer, compiler: GrammarCompiler) -> None:
    """min_tokens asks for more than the grammar has: the ends are drawn rather than something forbidden."""
    constraint = compiler(OutputFormat(regex="xx"), (EOS_ID,))
    banning = DrawRule(SamplingParams(1.0), 1, 3, (EOS_ID,), min_tokens=6, constraint=constraint)
    assert tokenizer.decode(plain(PROMPT, banning, tokenizer.vocab_size, 6)) == "xx"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (OutputFormat(json_schema="{"), "^json_schema: "),
        (OutputFormat(json_schema="[1]"), "^json_schema: .*object"),
        (OutputFormat(json_schema='{"type": "objec"}'), "^json_schema: .*objec"),
        (OutputFormat(json_schema='{"not": {}}'), "^json_schema: .*not"),
        (OutputFormat(json_schema='{"$ref": "http://127.0.0.1:1/x"}'), "^json_schema: "),
        (OutputFormat(json_schema='{"$ref": "#"}'), "^json_schema: "),
        (OutputFormat(json_schema="false"), "^json_schema: .*[Uu]nsatisfiable"),
        (OutputFormat(json_schema="[" * 60_000), "^json_schema: .*recursion"),
        (
            OutputFormat(json_schema=json.dumps({"enum": ["x" * MAX_FORMAT_BYTES]})),
            f"^json_schema: .*{MAX_FORMAT_BYTES}",
        ),
        (OutputFormat(regex="("), "^regex: .*unclosed"),
        (OutputFormat(regex="(?=a)b"), "^regex: .*look-around"),
        (OutputFormat(regex="x" * (MAX_FORMAT_BYTES + 1)), f"^regex: .*{MAX_FORMAT_BYTES}"),
        (OutputFormat(regex=".*" * 500), "^regex: "),
        (OutputFormat(grammar="root ::= " + "(" * 20_000), "^grammar: "),
        (OutputFormat(grammar="start: nowhere"), "^grammar: .*nowhere"),
        (
            OutputFormat(
                grammar="a: b b\n" + "\n".join(f"{c}: {d} {d}" for c, d in zip("bcdefgh", "cdefghi", strict=True))
            ),
            "^grammar: ",
        ),
        (OutputFormat(regex="a", json_object=True), "^json_object, regex: "),
        (OutputFormat(), "^format: "),
    ],
)
def test_bad_and_hostile_formats_are_refused_by_name(
    compiler: GrammarCompiler, wanted: OutputFormat, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        compiler(wanted, (EOS_ID,))
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_what_takes_too_long_is_left_behind_and_only_once(tokenizer: Tokenizer) -> None:
    compiler = GrammarCompiler(tokenizer, deadline_s=0.02)
    began = time.monotonic()
    with pytest.raises(InvalidRequest, match=r"^regex: .*compile"):
        compiler(OutputFormat(regex=".*" * 2500), (EOS_ID,))
    with pytest.raises(Exhausted, match=r"^regex: "):
        compiler(OutputFormat(regex="x"), (EOS_ID,))
    assert time.monotonic() - began < 5


def test_a_turn_that_no_token_can_end_gets_no_grammar(compiler: GrammarCompiler) -> None:
    with pytest.raises(InvalidRequest, match=r"^regex: .*end"):
        compiler(OutputFormat(regex="x"), ())


def test_the_library_is_there() -> None:
    assert missing_library() is None
