"""Steps, samples, pages and refusals of the torch runner."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from acespec.cloud.runner import Block, Drawn, Runner, prefill_chunks
from acespec.cloud.torch_backend.config import parse_config, read_config
from acespec.cloud.torch_backend.linear import RULES, PlainKernel
from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.proto.errors import (
    InvalidRequest,
    ModelNotFound,
    NumericsError,
    UnsupportedModel,
    UsageError,
)
from acespec.proto.sampling import sample
from acespec.proto.sampling_params import SamplingParams
from tests.cloud.torch_runners import GREEDY, VOCAB, block, one_at_a_time, table, text, tiny_folder, tiny_runner

PARAMS = [
    GREEDY,
    SamplingParams(temperature=0.7, top_p=0.9),
    SamplingParams(temperature=1.0, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2),
]


def generate(runner: Runner, prompt: list[int], count: int, params: SamplingParams, seed: int) -> list[int]:
    """Plain decoding: one token a step."""
    pages, tokens = table(0), list(prompt)
    runner.step([block(pages, 0, tokens[:-1], len(tokens) - 1)])
    for _ in range(count):
        at = len(tokens) - 1
        one = block(pages, at, tokens[at:], prefix=tokens, params=params, seed=seed, prompt_len=len(prompt))
        tokens += runner.step([one])[0].tokens
    return tokens


@pytest.mark.parametrize("params", PARAMS)
def test_a_sample_is_the_reference_sample_of_the_rows_logits(params: SamplingParams) -> None:
    runner = tiny_runner()
    prompt = text(20)
    tokens = generate(runner, prompt, 30, params, seed=5)
    logits = one_at_a_time(runner, tokens)
    assert logits.shape[1] == VOCAB + 20
    for at in range(len(prompt), len(tokens)):
        expected = sample(logits[at - 1], params, 5, at, prefix=tokens[:at], prompt_len=len(prompt), vocab_size=VOCAB)
        assert tokens[at] == expected < VOCAB


@pytest.mark.parametrize("params", PARAMS)
def test_drafts_of_the_target_itself_are_all_accepted(params: SamplingParams) -> None:
    runner = tiny_runner("qwen3")
    prompt = text(20)
    tokens = generate(runner, prompt, 40, params, seed=2**64 - 1)
    pages = table(1)
    runner.step([block(pages, 0, tokens[:19], 19)])
    at = 19
    for size in (1, 2, 5, 16, 15):
        rows = block(pages, at, tokens[at : at + size], prefix=tokens, params=params, seed=2**64 - 1, prompt_len=20)
        assert runner.step([rows]) == [Drawn(tuple(tokens[at + 1 : at + 1 + size]), tuple(range(size)))]
        at += size


def test_sampling_stops_after_the_first_mismatch() -> None:
    runner = tiny_runner()
    tokens = generate(runner, text(10), 12, GREEDY, 0)
    pages = table(1)
    runner.step([block(pages, 0, tokens[:9], 9)])
    for good in range(6):
        wrong = (tokens[10 + good] + 1) % VOCAB
        drafts = [*tokens[10 : 10 + good], wrong, *tokens[11 + good : 16]]
        (drawn,) = runner.step([block(pages, 9, [tokens[9], *drafts])])
        assert drawn == Drawn(tuple(tokens[10 : 11 + good]), tuple(range(good + 1)))


def test_a_prefill_chunk_samples_its_last_row_or_nothing() -> None:
    runner = tiny_runner()
    prompt = text(150)
    pages = table(0)
    edges = prefill_chunks(0, 150, 64)
    assert edges == [(0, 64), (64, 128), (128, 150)]
    inner = [runner.step([block(pages, a, prompt[a:b], b - a)]) for a, b in edges[:-1]]
    assert inner == [[Drawn((), ())], [Drawn((), ())]]
    (last,) = runner.step([block(pages, 128, prompt[128:], 21)])
    assert last == Drawn((int(one_at_a_time(runner, prompt)[-1, :VOCAB].argmax()),), (21,))


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 10, [(0, 10)]),
        (5, 5, []),
        (60, 130, [(60, 64), (64, 128), (128, 130)]),
        (64, 128, [(64, 128)]),
        (63, 65, [(63, 64), (64, 65)]),
    ],
)
def test_prefill_chunks_end_at_absolute_multiples(start: int, end: int, expected: list[tuple[int, int]]) -> None:
    assert prefill_chunks(start, end, 64) == expected


def test_the_context_can_be_filled_to_its_last_position() -> None:
    runner = TorchRunner.load(tiny_folder(), vocab_size=VOCAB, max_length=100)
    assert runner.max_length == 100
    tokens = text(101)
    assert runner.pages == 128
    pages = table(0)
    (rows,) = runner.logits([block(pages, 0, tokens[:100])])
    assert np.array_equal(rows, one_at_a_time(tiny_runner(), tokens[:100]))
    with pytest.raises(InvalidRequest, match="101 is beyond"):
        runner.step([block(pages, 100, tokens[100:])])


def _bad_blocks() -> list[tuple[Block, str]]:
    own = table(0)
    return [
        (block(own, 0, []), "without tokens"),
        (block(own, 3, [1], prefix=[1, 2]), "2 prefix tokens"),
        (block(own, 0, [1, VOCAB]), f"{VOCAB} is outside"),
        (block(own, 0, [-1]), "-1 is outside"),
        (block(own, 0, [1], 2), "sample_from"),
        (block((512,), 0, [1]), "outside the 512"),
        (block((0,), 63, [1, 2]), "do not hold 65"),
        (block((0, 0), 0, [1]), "share a page"),
        (block((*own[:2], 8), 128, [1]), "share a page"),
        (block(own, 3, [1, 2, 3], parents=[-1, 0]), "one earlier parent"),
        (block(own, 3, [1, 2, 3], parents=[-1, 2, 0]), "one earlier parent"),
    ]


@pytest.mark.parametrize(("bad", "message"), _bad_blocks())
def test_a_bad_block_is_refused_before_anything_changes(bad: Block, message: str) -> None:
    runner = tiny_runner()
    runner.step([block(table(0), 0, [1, 2, 3])])
    before = runner._cache.kv.clone()
    with pytest.raises(InvalidRequest, match=message):
        runner.step([block(table(1), 0, [5]), bad])
    assert torch.equal(runner._cache.kv, before)


def test_steps_are_timed_at_load() -> None:
    runner = tiny_runner()
    profile = runner.timing()
    seconds = [s for _, s in profile.curve]
    assert profile.name == runner.numerics_id
    assert seconds == sorted(seconds)
    assert seconds[0] > 0
    assert len(seconds) >= 4
    assert runner.timing() is profile


def test_the_numerics_name_follows_weights_and_vocabulary(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(tiny_folder(), folder)
    name = tiny_runner().numerics_id
    assert TorchRunner.load(folder, vocab_size=VOCAB).numerics_id == name
    assert TorchRunner.load(folder, vocab_size=VOCAB, max_length=90).numerics_id == name
    assert TorchRunner.load(folder, vocab_size=VOCAB - 1).numerics_id != name
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-3] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert TorchRunner.load(folder, vocab_size=VOCAB).numerics_id != name


def test_a_machine_that_fails_the_self_check_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class TellsTheRowCount(PlainKernel):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return super().__call__(x) * (1 + len(x) * 1e-6)

    monkeypatch.setattr("acespec.cloud.torch_backend.linear.best_kernel", TellsTheRowCount)
    monkeypatch.setattr("acespec.cloud.torch_backend.linear.find_rule", lambda kernel: RULES[0])
    with pytest.raises(NumericsError, match="one token at a time"):
        TorchRunner.load(tiny_folder(), vocab_size=VOCAB)
    assert not TorchRunner.load(tiny_folder(), vocab_size=VOCAB, allow_inexact=True).exact


def test_the_default_is_exact() -> None:
    assert tiny_runner().exact


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "mamba"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
        ({"use_sliding_window": True}, "sliding"),
        ({"quantization_config": {"bits": 4}}, "quanti"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"num_key_value_heads": 3}, "divide"),
        ({"vocab_size": None}, "vocab_size"),
    ],
)
def test_what_is_not_served_is_refused_by_name(change: dict[str, object], message: str) -> None:
    settings = json.loads((tiny_folder() / "config.json").read_text(encoding="utf-8"))
    with pytest.raises(UnsupportedModel, match=message):
        parse_config({**settings, **change})


def test_device_dtype_threads_and_vocabulary_are_checked() -> None:
    with pytest.raises(UsageError, match="cuda"):
        TorchRunner.load(tiny_folder(), vocab_size=VOCAB, device="cuda")
    with pytest.raises(UsageError, match="bfloat16"):
        TorchRunner.load(tiny_folder(), vocab_size=VOCAB, dtype="bfloat16")
    with pytest.raises(UsageError, match="threads"):
        TorchRunner.load(tiny_folder(), vocab_size=VOCAB, threads=0)
    with pytest.raises(UnsupportedModel, match="tokenizer"):
        TorchRunner.load(tiny_folder(), vocab_size=VOCAB + 21)


def test_broken_folders_give_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(UnsupportedModel, match="cannot be read"):
        read_config(tmp_path)
    shutil.copy(tiny_folder() / "config.json", tmp_path)
    with pytest.raises(ModelNotFound, match="neither"):
        TorchRunner.load(tmp_path, vocab_size=VOCAB)
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UnsupportedModel, match="safetensors"):
        TorchRunner.load(tmp_path, vocab_size=VOCAB)
    shutil.copy(tiny_folder("qwen2") / "model.safetensors", tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**settings, "hidden_size": 32}), encoding="utf-8")
    with pytest.raises(UnsupportedModel, match=r"embed_tokens.*shape"):
        TorchRunner.load(tmp_path, vocab_size=VOCAB)
