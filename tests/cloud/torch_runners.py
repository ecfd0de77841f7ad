"""Tiny torch runners, texts, page tables and golden logits that several tests share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.runner import PAGE, Block
from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.proto.sampling_params import SamplingParams
from tests.tiny import ModelType, tiny_model_folder

VOCAB = 300
GREEDY = SamplingParams()
TABLE = 8
"""Pages of a text of the tiny models' full length."""

Logits = NDArray[np.float32]
Pages = tuple[int, ...]


@cache
def tiny_folder(
    model_type: ModelType = "llama", heads: int = 4, kv_heads: int = 2, ffn: int = 128, head_dim: int | None = None
) -> Path:
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
        head_dim=head_dim,
        padded_rows=20,
        tie=model_type != "qwen3",
    )


def tiny_runner(
    model_type: ModelType = "llama",
    *,
    threads: int = 1,
    heads: int = 4,
    kv_heads: int = 2,
    ffn: int = 128,
    head_dim: int | None = None,
) -> TorchRunner:
    folder = tiny_folder(model_type, heads, kv_heads, ffn, head_dim)
    return TorchRunner.load(folder, vocab_size=VOCAB, threads=threads)


def table(number: int) -> Pages:
    """The page table of session `number`, in consecutive pages that no other session has."""
    return tuple(range(number * TABLE, (number + 1) * TABLE))


REFERENCE = table(31)


def block(
    pages: Pages,
    start: int,
    tokens: Sequence[int],
    sample_from: int = 0,
    *,
    prefix: Sequence[int] | None = None,
    params: SamplingParams = GREEDY,
    seed: int = 0,
    prompt_len: int = 0,
    rule: DrawRule | None = None,
    parents: Sequence[int] = (),
) -> Block:
    """A block whose prefix does not matter unless it is given."""
    prefix = (0,) * start if prefix is None else prefix
    rule = rule or DrawRule(params, seed, prompt_len)
    return Block(pages, start, tuple(tokens), prefix, sample_from, rule, tuple(parents))


def text(length: int, seed: int = 0) -> list[int]:
    """Random token ids."""
    return [int(t) for t in np.random.default_rng(seed).integers(0, VOCAB, length)]


def one_at_a_time(runner: TorchRunner, tokens: Sequence[int], start: int = 0, pages: Pages = REFERENCE) -> Logits:
    """float32[len(tokens) - start, vocab rows]: the plain-decode logits, the reference of all others."""
    return np.concatenate([runner.logits([block(pages, n, [tokens[n]])])[0] for n in range(start, len(tokens))])


def in_chunks(
    runner: TorchRunner, tokens: Sequence[int], sizes: Sequence[int], start: int = 0, pages: Pages = REFERENCE
) -> Logits:
    """The same logits from blocks of the given sizes, repeated as needed."""
    rows: list[Logits] = []
    turn = 0
    while start < len(tokens):
        size = sizes[turn % len(sizes)]
        rows += runner.logits([block(pages, start, tokens[start : start + size])])
        start, turn = start + size, turn + 1
    return np.concatenate(rows)


def kv_of(runner: TorchRunner, pages: Pages, length: int) -> Logits:
    """A copy of the keys and values at positions 0 .. length - 1: float32[layers, 2, kv_heads, length, head_dim]."""
    rows = [pages[n // PAGE] * PAGE + n % PAGE for n in range(length)]
    copied: Logits = runner._cache.kv[:, :, :, rows].numpy()
    return copied


def poison(runner: TorchRunner, pages: Pages, start: int) -> None:
    """NaN at all positions of these pages from `start` on, as if a former owner with a broken model had left it."""
    for number in range(start // PAGE, len(pages)):
        first = pages[number] * PAGE
        runner._cache.kv[:, :, :, first + max(0, start - number * PAGE) : first + PAGE] = float("nan")
        runner._cache._dirty[pages[number]] = PAGE


def same_bits(a: Logits, b: Logits) -> bool:
    """Equal in every bit: also tells -0 from 0."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return a.shape == b.shape and bool(np.array_equal(a.view(np.uint32), b.view(np.uint32)))


def restore_threads() -> None:
    torch.set_num_threads(1)


_homes: list[TemporaryDirectory[str]] = []
