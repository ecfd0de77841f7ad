"""Tiny runners on Triton's interpreter, which stands in for the GPU: the same kernels, a thousand times slower.

Contexts are noise that is written into the pages, since running a long prompt would take minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from acespec.cloud.cuda_backend.kv_pool import KvPool
from acespec.cloud.cuda_backend.limits import PassLimits
from acespec.cloud.cuda_backend.runner import CudaRunner
from acespec.cloud.cuda_backend.weights import load_weights
from acespec.cloud.runner import PAGE, Block
from acespec.cloud.torch_backend.config import read_config
from acespec.cloud.torch_backend.weights import Checkpoint
from tests.cloud.torch_runners import VOCAB, Logits, Pages, block
from tests.tiny import ModelType, tiny_model_folder

CPU = torch.device("cpu")
PAGES = 40


@cache
def tiny_gpu_folder(family: ModelType = "llama", layers: int = 1) -> Path:
    """A smaller model than `torch_runners.tiny_folder`, with an odd shape: 3 query heads on each of 2 KV heads."""
    home = TemporaryDirectory(prefix="acespec-tiny-")
    _homes.append(home)
    return tiny_model_folder(
        home.name,
        model_type=family,
        vocab=VOCAB,
        padded_rows=20,
        layers=layers,
        hidden=96,
        heads=6,
        kv_heads=2,
        head_dim=16,
        ffn=80,
        tie=family != "qwen3",
    )


def gpu_runner(folder: Path, max_length: int = 512) -> CudaRunner:
    """A runner whose pages hold noise. It is not self-checked: that would take minutes here."""
    config = read_config(folder)
    with torch.inference_mode():
        weights = load_weights(config, Checkpoint(folder, config.quantization), max_length, CPU)
        pool = KvPool(config, PAGES, PassLimits().rows, CPU)
        fill_with_noise(pool)
        return CudaRunner(weights, pool, vocab_size=VOCAB, max_length=max_length, wide=True)


def fill_with_noise(pool: KvPool, seed: int = 0) -> None:
    pool.kv.copy_(torch.randn(pool.kv.shape, generator=torch.Generator().manual_seed(seed)))


@torch.inference_mode()
def copy_pages(runner: CudaRunner, source: Pages, target: Pages) -> None:
    """Make the pages `target` hold what `source` hold."""
    kv = runner._pool.kv
    for here, there in zip(source, target, strict=True):
        kv[:, :, there * PAGE : (there + 1) * PAGE] = kv[:, :, here * PAGE : (here + 1) * PAGE]


@torch.inference_mode()
def poison(runner: CudaRunner, pages: Sequence[int], start: int) -> None:
    """NaN and infinity at all positions of these pages from `start` on."""
    for number in range(start // PAGE, len(pages)):
        first = pages[number] * PAGE
        stale = runner._pool.kv[:, :, first + max(0, start - number * PAGE) : first + PAGE]
        stale[:, :, ::2] = float("nan")
        stale[:, :, 1::2] = float("inf")


def one_by_one(runner: CudaRunner, pages: Pages, start: int, tokens: Sequence[int]) -> Logits:
    """Plain decode steps from `start` on: the reference of everything else."""
    return np.concatenate([runner.logits([block(pages, start + n, [t])])[0] for n, t in enumerate(tokens)])


def at_once(runner: CudaRunner, *blocks: Block) -> list[Logits]:
    return runner.logits(list(blocks))


_homes: list[TemporaryDirectory[str]] = []
