"""The same noise written for torch and for MLX gives NumPy's bits: the promise that the transform was made for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acespec.proto import noise

Array = Any  # an array of the twin's library
Twin = Callable[[NDArray[np.uint32]], NDArray[np.float32]]
COEFFICIENTS = [float(c) for c in noise.LOG1P_OVER_F]
THREE_QUARTERS_BITS, MANTISSA_BITS = 0x3F400000, 0x007FFFFF


def bits() -> NDArray[np.uint32]:
    edges = np.concatenate([base + np.arange(-500, 500) for base in (500, 1 << 24, 1 << 31, 3 << 30, (1 << 32) - 500)])
    return np.concatenate([edges.astype(np.uint32), noise.noise_bits(11, 22, 1_000_000)])


def torch_philox(seed: int, position: int, count: int) -> NDArray[np.uint32]:
    """Integers as int64: products wrap, and their low 64 bits are right."""
    torch = pytest.importorskip("torch")
    mask = 0xFFFFFFFF
    c0 = torch.arange((count + 3) // 4, dtype=torch.int64)
    c1, c2, c3 = torch.full_like(c0, position), torch.zeros_like(c0), torch.zeros_like(c0)
    k0, k1 = seed & mask, seed >> 32
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32 & mask) ^ c1 ^ k0, p1 & mask, (p0 >> 32 & mask) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    words: NDArray[np.uint32] = torch.stack((c0, c1, c2, c3), dim=1).reshape(-1)[:count].numpy().astype(np.uint32)
    return words


def torch_gumbel(x: NDArray[np.uint32]) -> NDArray[np.float32]:
    torch = pytest.importorskip("torch")

    def unit(word: Array) -> Array:
        return (word.to(torch.float32) + 0.5) * 2.0**-32

    def log(y: Array, replacement: Array = None, where: Array = None) -> Array:
        shifted = y.view(torch.int32) - THREE_QUARTERS_BITS
        f = ((shifted & MANTISSA_BITS) + THREE_QUARTERS_BITS).view(torch.float32) - 1.0
        if where is not None:
            f = torch.where(where, replacement, f)
        p = f * COEFFICIENTS[-1]
        for c in COEFFICIENTS[-2:0:-1]:
            p = (p + c) * f
        p = (p + COEFFICIENTS[0]) * f
        return p + (shifted >> 23).to(torch.float32) * torch.tensor(0.6931472, dtype=torch.float32)

    word = torch.from_numpy(x.astype(np.int64))
    log_u = log(unit(word), -unit(0xFFFFFFFF - word), word >= 0xC0000000)
    g: NDArray[np.float32] = (-log(-log_u)).numpy()
    return g


def mlx_gumbel(x: NDArray[np.uint32]) -> NDArray[np.float32]:
    mx = pytest.importorskip("mlx.core")

    def unit(word: Array) -> Array:
        return (word.astype(mx.float32) + 0.5) * 2.0**-32

    def log(y: Array, replacement: Array = None, where: Array = None) -> Array:
        shifted = y.view(mx.int32) - THREE_QUARTERS_BITS
        f = ((shifted & MANTISSA_BITS) + THREE_QUARTERS_BITS).view(mx.float32) - 1.0
        if where is not None:
            f = mx.where(where, replacement, f)
        p = f * COEFFICIENTS[-1]
        for c in COEFFICIENTS[-2:0:-1]:
            p = (p + c) * f
        p = (p + COEFFICIENTS[0]) * f
        return p + (shifted >> 23).astype(mx.float32) * 0.6931472

    with mx.stream(mx.cpu):
        word = mx.array(x)
        log_u = log(unit(word), -unit(0xFFFFFFFF - word), word >= 0xC0000000)
        return np.array(-log(-log_u))


@pytest.mark.parametrize("twin", [torch_gumbel, mlx_gumbel])
def test_the_transform_has_the_same_bits(twin: Twin) -> None:
    ours, theirs = noise.gumbel_from_bits(bits()), twin(bits())
    assert np.array_equal(ours.view(np.uint32), theirs.view(np.uint32))


@pytest.mark.parametrize("seed", [0, 1, 0xFFFFFFFFFFFFFFFF, 0x8000000080000000])
def test_philox_has_the_same_bits_in_int64(seed: int) -> None:
    assert np.array_equal(noise.noise_bits(seed, 0xFFFFFFFE, 1003), torch_philox(seed, 0xFFFFFFFE, 1003))


def test_a_library_logarithm_would_not_do() -> None:
    """The reason for an own polynomial: NumPy's and the exact logarithm differ in the last bit somewhere."""
    x = bits()
    u = (x.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    low = u < 0.75
    library = -np.log(-np.log(u[low]))
    assert (library != noise.gumbel_from_bits(x[low])).any()
