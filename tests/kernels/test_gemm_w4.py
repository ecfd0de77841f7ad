"""Packing keeps every code in its place; the product has the bits of `gemm` on the unpacked weight."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.kernels.gemm import gemm, gemm_reference
from acespec.kernels.gemm_w4 import gemm_w4
from acespec.kernels.interpreter import fixed_order_dot
from acespec.kernels.tiles import GemmTile
from acespec.kernels.w4_weight import W4Weight, dequantize, pack_w4, unpack_codes
from acespec.proto.errors import UsageError

SHAPES = [(1, 32, 32), (33, 96, 32), (40, 160, 160), (64, 128, 128), (70, 192, 64), (33, 288, 32), (20, 384, 128)]
"""(N, K, group): rows in chunks of 32, 64 and 128; K below, at and beyond a block and no multiple of one."""
Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture
def fixed_order() -> Iterator[None]:
    with fixed_order_dot():
        yield


def _parts(n: int, k: int, group: int, seed: int = 0) -> Parts:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 16, (n, k), dtype=torch.uint8, generator=generator)
    zeros = torch.randint(0, 17, (n, k // group), dtype=torch.uint8, generator=generator)
    scales = (torch.randn(n, k // group, generator=generator) * 0.02).half()
    return codes, scales, zeros


def _packed(n: int, k: int, group: int, seed: int = 0) -> W4Weight:
    return pack_w4(*_parts(n, k, group, seed), group)


def _tile(splits: int = 1, block_rows: int = 64) -> GemmTile:
    return GemmTile(64, block_rows, 128, splits, stages=3, warps=4)


def _rows(rows: int, inputs: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed)).bfloat16()


def _product(x: torch.Tensor, weight: W4Weight, tile: GemmTile) -> torch.Tensor:
    out = torch.full((tile.splits, len(x), weight.shape[0]), float("nan"))
    gemm_w4(x, weight, out, tile)
    return out


@given(st.integers(1, 9), st.sampled_from([(32, 32), (96, 32), (192, 64), (256, 128), (160, 160)]), st.integers(0, 99))
@settings(max_examples=30)
def test_unpacking_gives_back_what_was_packed(n: int, shape: tuple[int, int], seed: int) -> None:
    codes, scales, zeros = _parts(n, *shape, seed)
    weight = pack_w4(codes, scales, zeros, shape[1])
    assert weight.shape == (n, shape[0])
    assert torch.equal(unpack_codes(weight), codes)
    assert torch.equal(weight.scales, scales)
    assert torch.equal(weight.zeros, zeros)


def test_a_word_holds_the_inputs_of_one_thread_of_a_quad() -> None:
    for k, at in [(0, (0, 0)), (1, (0, 16)), (2, (4, 0)), (9, (0, 20)), (16, (0, 8)), (31, (12, 28)), (32, (1, 0))]:
        codes = torch.zeros(1, 128, dtype=torch.uint8)
        codes[0, k] = 5
        words = pack_w4(codes, torch.ones(1, 1).half(), torch.zeros(1, 1, dtype=torch.uint8), 128).words[0]
        found = [(word, int(value) & 0xFFFFFFFF) for word, value in enumerate(words) if value]
        assert found == [(at[0], 5 << at[1])], k


def test_dequantized_is_the_exact_product_rounded_once() -> None:
    codes, scales, zeros = _parts(5, 64, 32)
    steps = codes.double() - zeros.double().repeat_interleave(32, 1)
    exact = steps * scales.double().repeat_interleave(32, 1)
    assert torch.equal(dequantize(pack_w4(codes, scales, zeros, 32)), exact.float().bfloat16())


def test_packed_arithmetic_is_exact_for_every_scale() -> None:
    """The four instructions of `scaled_pairs` on all finite scales, in float64: what is claimed exact is."""
    scales = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    scale = scales[np.isfinite(scales)].astype(np.float32)
    high = (scale.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    low = scale - high
    assert not (low.view(np.uint32) & 0xFFFF).any()
    for code_less_zero in range(-16, 16):
        small = code_less_zero * low
        assert not (small.view(np.uint32) & 0xFFFF).any()
        whole = code_less_zero * high.astype(np.float64) + small
        expected = np.float32(code_less_zero) * scale
        assert np.array_equal(whole, expected.astype(np.float64))


@pytest.mark.usefixtures("fixed_order")
@pytest.mark.parametrize(("n", "k", "group"), SHAPES)
@pytest.mark.parametrize("splits", [1, 2])
def test_bits_are_those_of_the_unpacked_product(n: int, k: int, group: int, splits: int) -> None:
    weight, x, tile = _packed(n, k, group), _rows(5, k), _tile(splits)
    expected = torch.full((splits, 5, n), float("nan"))
    gemm(x, dequantize(weight), expected, tile)
    assert torch.equal(_product(x, weight, tile), expected)


@pytest.mark.parametrize("splits", [1, 2, 3, 4])
def test_equals_the_reference(splits: int) -> None:
    weight, x = _packed(65, 480, 32), _rows(65, 480)
    expected = gemm_reference(x, dequantize(weight), splits, 128)
    torch.testing.assert_close(_product(x, weight, _tile(splits)), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("fixed_order")
def test_a_row_alone_and_in_company_has_the_same_bits() -> None:
    weight, x = _packed(33, 160, 32), _rows(130, 160)
    together = _product(x, weight, _tile(2))
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64, 65, 128):
        assert torch.equal(_product(x[-rows:], weight, _tile(2)), together[:, -rows:]), rows
    assert torch.equal(_product(x, weight, _tile(2, block_rows=128)), together)


@pytest.mark.usefixtures("fixed_order")
def test_a_broken_row_spoils_no_other() -> None:
    weight, x = _packed(20, 96, 32), _rows(4, 96)
    clean = _product(x, weight, _tile())
    x[1] = float("nan")
    out = _product(x, weight, _tile())
    assert out[0, 1].isnan().all()
    assert torch.equal(out[:, [0, 2, 3]], clean[:, [0, 2, 3]])


def test_weights_that_do_not_fit_are_refused() -> None:
    codes, scales, zeros = _parts(4, 192, 64)
    for k, group in [(192, 96), (192, 8), (192, 128), (40, 40)]:
        with pytest.raises(UsageError, match="quantise it anew"):
            pack_w4(codes[:, :k], scales, zeros, group)
    with pytest.raises(UsageError, match="scales are"):
        pack_w4(codes, scales[:, :2], zeros, 64)
    with pytest.raises(UsageError, match="zeros are"):
        pack_w4(codes, scales, zeros.int(), 64)
    for bad_codes, bad_zeros in [(codes | 16, zeros), (codes, zeros + 17)]:
        with pytest.raises(UsageError, match="damaged"):
            pack_w4(bad_codes, scales, bad_zeros, 64)
    with pytest.raises(UsageError, match="infinite or NaN"):
        pack_w4(codes, scales * torch.inf, zeros, 64)
