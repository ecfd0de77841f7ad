"""The default model: its bits do not depend on how it is run, and its logits are those of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.models.store import resolve
from acespec.models.tokenizer import Tokenizer
from tests.cloud.torch_runners import block, in_chunks, one_at_a_time, restore_threads, same_bits, table

pytestmark = pytest.mark.model

PROMPT = "The tide tables of the harbour were printed once a year. In March, the second page was missing, and"


@pytest.fixture(scope="module")
def folder() -> Path:
    return resolve("smollm2-135m", offline=True)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    yield
    restore_threads()


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_verify_at_once_equals_one_at_a_time(folder: Path, threads: int) -> None:
    tokenizer = Tokenizer.load(folder)
    runner = TorchRunner.load(folder, vocab_size=tokenizer.vocab_size, threads=threads)
    assert runner.exact
    tokens = (tokenizer.encode(PROMPT) * 4)[:76]
    own, mate, apart = table(0), table(1), (40, 20)
    runner.logits([block(own, 0, tokens[:60], 60)])
    plain = one_at_a_time(runner, tokens, 60, own)
    assert same_bits(runner.logits([block(own, 60, tokens[60:])])[0], plain)
    assert same_bits(runner.logits([block(own, 0, tokens, 60)])[0], plain)
    assert same_bits(runner.logits([block(apart, 0, tokens, 60)])[0], plain)
    for count in (2, 5):
        blocks = [block(mate, 0, tokens[:count]), block(own, 60, tokens[60 : 60 + count])]
        assert same_bits(runner.logits(blocks)[1], plain[:count])
    # The text as a side branch at every depth, in pages side by side and apart.
    rows, parents = tokens[60:61], [-1]
    for depth, token in enumerate(tokens[61:]):
        rows += [(token + 1) % tokenizer.vocab_size, token]
        parents += [2 * depth, 2 * depth]
    for pages in (own, apart):
        assert same_bits(runner.logits([block(pages, 60, rows, parents=parents)])[0][::2], plain)


def test_logits_equal_those_of_transformers(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.load(folder)
    tokens = tokenizer.encode(PROMPT)
    ours = in_chunks(TorchRunner.load(folder, vocab_size=tokenizer.vocab_size), tokens, [16])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        theirs = model(torch.tensor([tokens])).logits[0].numpy()
    assert np.abs(ours - theirs).max() < 1e-3
    assert np.array_equal(ours.argmax(-1), theirs.argmax(-1))
