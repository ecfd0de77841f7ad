"""Sampling parameters: B28 to B32 of the list of behaviours."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from acespec.cloud.admission import FORMATS, SERVED
from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.session import Session
from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.edge.run_options import RunOptions
from acespec.proto import noise, prompt, wire
from acespec.proto.errors import InvalidRequest
from acespec.proto.logprobs import of_row
from acespec.proto.messages import Open, OutputFormat, Unserved
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.seeds import choice_seed
from tests.behaviours.engine import (
    GREEDY,
    HOT,
    MAIN_KINDS,
    Ask,
    Engine,
    ask,
    bare_loop,
    chain,
    drafters,
    guesses,
    plain,
    reference,
    run_alone,
    target,
    tokenizer,
)
from tests.cloud.torch_runners import VOCAB, block, table, tiny_folder
from tests.cloud.toy import ToyRunner
from tests.cloud.toy_server import FINGERPRINT, toy_admission, toy_card

PENALTIES = {
    "repetition": SamplingParams(temperature=0.7, repetition_penalty=1.4),
    "frequency": SamplingParams(temperature=0.7, frequency_penalty=0.9),
    "presence": SamplingParams(temperature=0.7, presence_penalty=1.1),
    "all, greedily": SamplingParams(0.0, 0, 1.0, 0.0, 1.2, 0.5, 0.6),
}


def explained(wanted: Ask, counted_too: Sequence[int] = ()) -> tuple[int, ...]:
    """The text by penalties as one would explain them, over the model's bare logits; `counted_too` are tokens that
    count as if they had been generated."""
    p = wanted.params
    bare = DrawRule(SamplingParams(temperature=p.temperature), wanted.seed, len(wanted.prompt))
    tokens = list(wanted.prompt)
    for _ in range(wanted.max_tokens):
        (rows,) = reference().logits([block(table(0), 0, tokens, len(tokens) - 1)])
        row = rows[-1][:VOCAB].copy()
        counts = Counter([*tokens[len(wanted.prompt) :], *counted_too])
        for token in {*tokens, *counted_too}:
            factor = np.float32(p.repetition_penalty)
            row[token] = row[token] / factor if row[token] > 0 else row[token] * factor
        for token, count in counts.items():
            row[token] -= np.float32(p.frequency_penalty) * np.float32(count)
            row[token] -= np.float32(p.presence_penalty)
        tokens.append(bare.draw(row, len(tokens), [], VOCAB))
    return tuple(tokens[len(wanted.prompt) :])


@pytest.mark.parametrize("name", PENALTIES)
def test_b28_penalties_count_every_accepted_token_once_and_no_rejected_one(name: str) -> None:
    """Under drafts of every kind, mixed in one batch, penalties see each row's own prefix: that the plain explanation
    gives the same text, and that it would not if rejected drafts counted."""
    wanted = ask(12, 3, PENALTIES[name], max_tokens=30)
    truth = explained(wanted)
    engine = Engine()
    sessions = {kind: engine.open(wanted, drafter) for kind, drafter in drafters(wanted, plain(wanted), 6).items()}
    engine.run()
    for kind, session in sessions.items():
        assert tuple(session.tokens) == truth, kind
    rejected = [(token + 1) % VOCAB for token in truth]
    assert explained(wanted, rejected) != truth
    assert explained(dataclasses.replace(wanted, params=HOT)) != truth, "the penalty matters"


@pytest.mark.parametrize("field", Unserved.__slots__)
def test_b29_every_unserved_control_is_refused_by_name(field: str) -> None:
    """Each control that has a field on the wire but is not served ends the request with an error that names it."""
    default = getattr(Unserved(), field)
    value = {bool: True, int: 3, str: "x"}[type(default)]
    refused(f"^{field}: ", extra=Unserved(**{field: value}))


@pytest.mark.parametrize("field", FORMATS)
def test_b29_formats_that_cannot_be_compiled_are_refused_by_name(field: str) -> None:
    """Without a grammar library no output format is silently ignored."""
    refused(f"^{field}: not served", format=OutputFormat(**{field: True if field == "json_object" else "a"}))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"top_logprobs": 21}, "top_logprobs 21"),
        ({"min_tokens": 51}, "min_tokens 51"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"params": SamplingParams(logit_bias=((64, 1.0),))}, "logit_bias: token id 64"),
        ({"stop_ids": (64,)}, "stop_ids: token id 64"),
        ({"stop_strings": ("x",) * 65}, "stop: "),
    ],
)
def test_b29_values_that_are_not_served_are_refused_by_name(changes: dict[str, object], named: str) -> None:
    """A served control with a value out of range is an error that names it, not a changed output."""
    refused(named, **changes)


def test_b29_what_is_served_is_listed() -> None:
    """Every sampling parameter is among the served ones that `Describe` lists."""
    assert {field.name for field in dataclasses.fields(SamplingParams)} <= set(SERVED)
    assert not set(Unserved.__slots__) & set(SERVED)


def refused(named: str, **changes: object) -> None:
    """The request, sent over the wire, is refused with words that match `named`; without `changes` it is served."""
    whole = Open(b"s" * 16, 0, FINGERPRINT, 3, 7, 50, append=prompt.pack_ids([3, 1, 4], 64))
    session = Session(("p", b"s" * 16), toy_admission(toy_card(ToyRunner(64))), lambda message: 20)
    session.receive(0.0, wire.decode_edge(wire.encode_edge(whole)))
    frame = dataclasses.replace(whole, epoch=1, **changes)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=named):
        session.receive(0.0, wire.decode_edge(wire.encode_edge(frame)))


@pytest.mark.parametrize("depth", [0, 5])
def test_b30_seeds_decide_and_are_kept_apart_in_a_batch(depth: int) -> None:
    """Two requests of one seed in a batch say the same, sixteen seeds say sixteen texts, each as it does alone."""
    asks = [ask(9, 1, HOT, max_tokens=16)] * 2
    asks += [dataclasses.replace(asks[0], seed=seed) for seed in (0, 2, 3, 2**32 + 1, 2**63, 2**64 - 1, *range(10, 18))]
    engine = Engine()
    sessions = [engine.open(wanted, guesses(wanted, plain(wanted), depth, 0.7)) for wanted in asks]
    engine.run()
    assert [s.answer for s in sessions] == [plain(wanted) for wanted in asks]
    assert sessions[0].tokens == sessions[1].tokens
    assert len({tuple(s.tokens) for s in sessions[1:]}) == 15


def test_b30_requests_without_a_seed_get_streams_of_their_own() -> None:
    """The edge draws a fresh seed for each request that names none, and tells it; n answers have n seeds."""
    unset = dict.fromkeys((field.name for field in dataclasses.fields(RunOptions)), None)
    options = RunOptions(**{**unset, "params": HOT, "max_tokens": 5, "min_tokens": 0, "stop": ()})  # type: ignore[arg-type]
    seeds = {options.request(tokenizer()).seed for _ in range(20)}
    assert len(seeds) == 20
    assert dataclasses.replace(options, seed=4).request(tokenizer()).seed == 4
    several = [choice_seed(4, n) for n in range(50)]
    assert several[0] == 4
    assert len(set(several)) == 50


def test_b31_noise_is_finite_for_every_kind_of_bits() -> None:
    """A million evenly spread 32-bit values, both ends and all places where the computation changes give finite noise
    within its bounds, and it falls nowhere from one value to the next."""
    near = [0, 1 << 31, 3 << 30, 1 << 32]
    edges = {*near, *(1 << power for power in range(32)), *((1 << 32) - (1 << power) for power in range(32))}
    around = [place + offset for place in edges for offset in range(-200, 200)]
    values = {*range(0, 1 << 32, 4099), *(v for v in around if 0 <= v < 1 << 32)}
    found = noise.gumbel_from_bits(np.array(sorted(values), np.uint32))
    assert np.isfinite(found).all()
    assert noise.LOWEST < found[0] <= found[-1] < noise.HIGHEST
    assert (np.diff(found) >= 0).all()


@pytest.fixture(scope="module")
def broken() -> TorchRunner:
    """A target whose logit of token 7 is NaN, of 8 infinite, of the padding rows huge."""
    runner = TorchRunner.load(tiny_folder(), vocab_size=VOCAB, kv_pages=16)
    with torch.inference_mode():
        weights = runner._model._embedding
        weights[7] = float("nan")
        weights[VOCAB:] *= 100
    return runner


@pytest.mark.parametrize("temperature", [0.0, 0.8, 50.0])
def test_b31_no_masked_token_is_ever_emitted(broken: TorchRunner, temperature: float) -> None:
    """A NaN logit, padding rows, barred and cut-off ids are never drawn, at any temperature, drafted or not."""
    params = SamplingParams(temperature=temperature, top_k=60, logit_bias=((9, float("-inf")), (10, -3e38)))
    wanted = Ask((3, 4, 5), params, 2, 40, stop_ids=(11, 12), min_tokens=40, top_logprobs=None)
    masked = [7, 9, 10, 11, 12]
    alone = bare_loop(wanted, broken).tokens
    hostile, _ = run_alone(wanted, lambda tokens: [(-1, t) for t in masked] + chain([7, 7])[1:], broken)
    right, _ = run_alone(wanted, guesses(wanted, bare_loop(wanted, broken), 5, 0.7), broken)
    for tokens in (alone, tuple(hostile.tokens), tuple(right.tokens)):
        assert tokens == alone
        assert not set(tokens) & set(masked)
        assert max(tokens) < VOCAB


@pytest.mark.parametrize("kind", MAIN_KINDS)
@pytest.mark.parametrize("top", [0, 20])
def test_b32_logprobs_are_those_of_plain_decoding_bit_for_bit(kind: str, top: int) -> None:
    """There is one item for each emitted token, from the row that drew it, with the bits of D = 0 and of a prefill."""
    params = SamplingParams(temperature=0.9, repetition_penalty=1.2, top_p=0.9)
    wanted = dataclasses.replace(ask(11, 8, params, max_tokens=25), top_logprobs=top)
    session, _ = run_alone(wanted, drafters(wanted, plain(wanted), 6)[kind])
    assert session.answer == plain(wanted)
    assert len(session.logprobs) == len(session.tokens) == 25
    whole = (*wanted.prompt, *session.tokens)
    (rows,) = reference().logits([block(table(0), 0, whole[:-1], len(wanted.prompt) - 1)])
    own = [of_row(row, token, top, VOCAB) for row, token in zip(rows, session.tokens, strict=True)]
    assert session.logprobs == own
    assert own[1:] != [of_row(row, token, top, VOCAB) for row, token in zip(rows, session.tokens[1:], strict=False)]


def test_b32_an_end_within_a_draft_ends_the_logprobs_too() -> None:
    """Where a block is cut by a stop, no log probability of what was behind it is reported."""
    free = ask(11, 8, GREEDY, max_tokens=25)
    stop = plain(free).tokens[6]
    wanted = dataclasses.replace(free, stop_ids=(stop,))
    session, _ = run_alone(wanted, guesses(wanted, plain(free), 16), target("llama"))
    assert session.answer == plain(wanted)
    assert len(session.logprobs) == len(session.tokens) == plain(free).tokens.index(stop) + 1
