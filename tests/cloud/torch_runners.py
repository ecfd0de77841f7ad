"""Tiny torch runners, texts and golden logits that several tests share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from acespec.cloud.runner import Block
from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.proto.sampling_params import SamplingParams
from tests.tiny import ModelType, tiny_model_folder

VOCAB = 300
GREEDY = SamplingParams()

Logits = NDArray[np.float32]


@cache
def tiny_folder(model_type: ModelType = "llama", heads: int = 4, kv_heads: int = 2, ffn: int = 128) -> Path:
    """A folder that lives as long as the test process."""
    home = TemporaryDirectory(prefix="acespec-tiny-")
    _homes.append(home)
    return tiny_model_folder(
        home.name,
        model_type=model_type,
        vocab=VOCAB,
        heads=heads,
        kv_heads=kv_heads,
        ffn=ffn,
        padded_rows=20,
        tie=model_type != "qwen3",
    )


def tiny_runner(
    model_type: ModelType = "llama", *, threads: int = 1, heads: int = 4, kv_heads: int = 2, ffn: int = 128
) -> TorchRunner:
    return TorchRunner.load(tiny_folder(model_type, heads, kv_heads, ffn), vocab_size=VOCAB, threads=threads)


def block(
    slot: int,
    start: int,
    tokens: Sequence[int],
    sample_from: int = 0,
    *,
    prefix: Sequence[int] | None = None,
    params: SamplingParams = GREEDY,
    seed: int = 0,
    prompt_len: int = 0,
) -> Block:
    """A block whose prefix does not matter unless it is given."""
    prefix = (0,) * start if prefix is None else prefix
    return Block(slot, start, tuple(tokens), prefix, sample_from, params, seed, prompt_len)


def text(length: int, seed: int = 0) -> list[int]:
    """Random token ids."""
    return [int(t) for t in np.random.default_rng(seed).integers(0, VOCAB, length)]


def one_at_a_time(runner: TorchRunner, tokens: Sequence[int]) -> Logits:
    """float32[len(tokens), vocab rows]: the plain-decode logits, the reference of all others."""
    slot = runner.allocate()
    rows = [runner.logits([block(slot, n, [token])])[0] for n, token in enumerate(tokens)]
    runner.release(slot)
    return np.concatenate(rows)


def in_chunks(runner: TorchRunner, tokens: Sequence[int], sizes: Sequence[int]) -> Logits:
    """The same logits from blocks of the given sizes, repeated as needed."""
    slot = runner.allocate()
    rows: list[Logits] = []
    start, turn = 0, 0
    while start < len(tokens):
        size = sizes[turn % len(sizes)]
        rows += runner.logits([block(slot, start, tokens[start : start + size])])
        start, turn = start + size, turn + 1
    runner.release(slot)
    return np.concatenate(rows)


def same_bits(a: Logits, b: Logits) -> bool:
    """Equal in every bit: also tells -0 from 0."""
    return a.shape == b.shape and bool(np.array_equal(a.view(np.uint32), b.view(np.uint32)))


def restore_threads() -> None:
    torch.set_num_threads(1)


_homes: list[TemporaryDirectory[str]] = []
