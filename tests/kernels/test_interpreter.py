"""The mended interpreter computes with bfloat16 as torch does, and a row of a product knows nothing of its company."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from acespec.kernels.interpreter import fixed_order_dot
from acespec.kernels.launch import interpreting


@triton.jit
def narrow_kernel(x, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(out + at, tl.load(x + at).to(tl.bfloat16))


@triton.jit
def widen_kernel(x, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(out + at, tl.load(x + at).to(tl.float32))


@triton.jit
def dot_kernel(a, b, out, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    m, k, n = tl.arange(0, M), tl.arange(0, K), tl.arange(0, N)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(out + m[:, None] * N + n[None, :], tl.dot(left, right))


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty(a.shape[0], b.shape[1])
    dot_kernel[(1,)](a, b, out, a.shape[0], a.shape[1], b.shape[1])
    return out


def test_kernels_of_these_tests_are_interpreted() -> None:
    assert interpreting()


@pytest.mark.parametrize("scale", [1e-40, 1e-3, 1.0, 1e30])
def test_float32_is_rounded_to_nearest_even(scale: float) -> None:
    x = torch.randn(1024, generator=torch.Generator().manual_seed(1)) * scale
    x[:8] = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3.3e38])
    out = torch.empty(1024, dtype=torch.bfloat16)
    narrow_kernel[(1,)](x, out, 1024)
    assert torch.equal(out.view(torch.int16), x.bfloat16().view(torch.int16))


def test_every_bfloat16_is_widened_exactly() -> None:
    x = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    out = torch.empty(65536)
    widen_kernel[(1,)](x, out, 65536)
    assert torch.equal(out.nan_to_num(7.0), x.float().nan_to_num(7.0))


def test_nan_stays_nan() -> None:
    out = torch.empty(16, dtype=torch.bfloat16)
    narrow_kernel[(1,)](torch.full((16,), float("nan")), out, 16)
    assert out.isnan().all()


def test_bfloat16_matrices_are_multiplied_as_numbers() -> None:
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randn(shape, generator=generator).bfloat16() for shape in ((32, 64), (64, 16)))
    torch.testing.assert_close(product(a, b), a.float() @ b.float())
    with fixed_order_dot():
        torch.testing.assert_close(product(a, b), a.float() @ b.float())


def test_in_a_fixed_order_a_row_has_the_same_bits_wherever_it_stands() -> None:
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(32, 64, generator=generator), torch.randn(64, 16, generator=generator)
    order = torch.randperm(32, generator=generator)
    with fixed_order_dot():
        assert torch.equal(product(a[order], b), product(a, b)[order])
