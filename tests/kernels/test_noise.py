"""Noise drawn by kernels has the bits of `acespec.proto.noise`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from acespec.kernels.noise import (
    gumbel_from_bits,
    gumbel_of_tokens,
    gumbel_rows,
    gumbel_rows_reference,
    load_key,
    philox,
)
from acespec.proto import noise

SEEDS = (0, 1, 0xFFFFFFFF, 1 << 32, 1 << 63, (1 << 64) - 1, 0x9E3779B97F4A7C15)
POSITIONS = (0, 1, 4097, (1 << 31) - 1)


@triton.jit
def _transform(words, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(words + at, mask=at < count, other=0).to(tl.uint32, bitcast=True)
    tl.store(out + at, gumbel_from_bits(x), mask=at < count)


@triton.jit
def _some(seeds, tokens, out, position, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    low, high = load_key(seeds, 0)
    token = tl.load(tokens + at)
    tl.store(out + at, gumbel_of_tokens(low, high, token, position.to(tl.uint32)))


@triton.jit
def _words(out):
    zero = tl.full((1,), 0, tl.uint32)
    a, b, c, d = philox(zero, zero, zero, zero)
    at = tl.arange(0, 1)
    tl.store(out + at, a.to(tl.int32, bitcast=True))
    tl.store(out + 1 + at, b.to(tl.int32, bitcast=True))
    tl.store(out + 2 + at, c.to(tl.int32, bitcast=True))
    tl.store(out + 3 + at, d.to(tl.int32, bitcast=True))


def seed_words(*seeds: int) -> torch.Tensor:
    return torch.from_numpy(np.array(seeds, "<u8").view("<i4").reshape(-1, 2).copy())


def test_known_answer() -> None:
    out = torch.zeros(4, dtype=torch.int32)
    _words[(1,)](out)
    assert [hex(w) for w in out.numpy().view(np.uint32)] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.parametrize("vocab", [1, 3, 4, 1023, 1024, 2051])
def test_rows_have_the_reference_s_bits(vocab: int) -> None:
    pairs = [(seed, position) for seed in SEEDS for position in POSITIONS]
    pairs = pairs if vocab == 3 else pairs[:: len(POSITIONS) + 1]
    seeds = seed_words(*(seed for seed, _ in pairs))
    positions = torch.tensor([position for _, position in pairs], dtype=torch.int32)
    out = torch.full((len(pairs), vocab + 5), -7.0)
    gumbel_rows(seeds, positions, out[:, :vocab])
    expected = np.stack([noise.gumbel(seed, position, vocab) for seed, position in pairs])
    assert same_bits(out[:, :vocab].numpy(), expected)
    assert same_bits(gumbel_rows_reference(seeds, positions, vocab).numpy(), expected)
    assert (out[:, vocab:] == -7.0).all()


def test_every_corner_of_the_transform() -> None:
    random = np.random.default_rng(5)
    near = np.arange(4096, dtype=np.uint32)
    words = np.concatenate(
        (
            near,
            ~near,
            np.uint32(3 << 30) - 2048 + near,
            np.uint32(1 << 31) - 2048 + near,
            np.uint32(1 << 24) - 2048 + near,
            random.integers(0, 1 << 32, 100_000, np.uint32),
        )
    )
    out = torch.zeros(words.size)
    block = 1 << 15
    _transform[(triton.cdiv(words.size, block),)](torch.from_numpy(words.view(np.int32)), out, words.size, BLOCK=block)
    assert same_bits(out.numpy(), noise.gumbel_from_bits(words))
    assert np.isfinite(out.numpy()).all()


def test_single_tokens_have_the_row_s_bits() -> None:
    seed, position, count = (1 << 64) - 12345, 70_000, 256
    tokens = np.random.default_rng(6).integers(0, 152_064, count).astype(np.int32)
    out = torch.zeros(count)
    _some[(1,)](seed_words(seed), torch.from_numpy(tokens), out, position, COUNT=count)
    assert same_bits(out.numpy(), noise.gumbel_at(seed, position, tokens))


def same_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
