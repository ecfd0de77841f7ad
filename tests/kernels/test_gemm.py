"""The product equals its reference, and a row's bits are its own: whoever is beside it, whichever tile it is in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from acespec.kernels.gemm import gemm, gemm_reference
from acespec.kernels.interpreter import fixed_order_dot
from acespec.kernels.tiles import GemmTile
from acespec.proto.errors import UsageError

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 64, 65, 128, 130)
NAN = float("nan")


@pytest.fixture
def fixed_order() -> Iterator[None]:
    with fixed_order_dot():
        yield


def _tile(splits: int = 1, block_rows: int = 64, block_n: int = 64, block_k: int = 32) -> GemmTile:
    return GemmTile(block_n, block_rows, block_k, splits, stages=3, warps=4)


def _random(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).bfloat16()


def _product(x: torch.Tensor, weight: torch.Tensor, tile: GemmTile) -> torch.Tensor:
    out = torch.full((tile.splits, len(x), len(weight)), NAN)
    gemm(x, weight, out, tile)
    return out


@pytest.mark.parametrize("splits", [1, 2, 3, 4])
@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(1, 1, 97), (3, 65, 128), (65, 33, 131), (7, 130, 200)])
def test_equals_the_reference(rows: int, outputs: int, inputs: int, splits: int) -> None:
    x, weight, tile = _random(rows, inputs, 1), _random(outputs, inputs, 2), _tile(splits)
    out = _product(x, weight, tile)
    torch.testing.assert_close(out, gemm_reference(x, weight, splits, tile.block_k), atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(out.sum(0), x.float() @ weight.float().T, atol=5e-5, rtol=1e-5)


def test_each_range_has_its_own_plane() -> None:
    x, weight = torch.ones(1, 100).bfloat16(), torch.ones(2, 100).bfloat16()
    assert _product(x, weight, _tile(splits=3))[:, 0].tolist() == [[64, 64], [36, 36], [0, 0]]


@pytest.mark.usefixtures("fixed_order")
def test_a_row_alone_and_in_company_has_the_same_bits() -> None:
    x, weight, tile = _random(ROWS[-1], 75, 3), _random(40, 75, 4), _tile(splits=2)
    together = _product(x, weight, tile)
    for rows in ROWS:
        assert torch.equal(_product(x[-rows:], weight, tile), together[:, -rows:]), rows


@pytest.mark.usefixtures("fixed_order")
def test_ranges_that_followed_the_rows_would_change_bits() -> None:
    """What the test above would catch: another cut of k for one row than for many."""
    x, weight = _random(1, 75, 3), _random(40, 75, 4)
    whole, (first, second) = _product(x, weight, _tile()), _product(x, weight, _tile(splits=2))
    assert not torch.equal(whole[0], first + second)


@pytest.mark.usefixtures("fixed_order")
def test_wide_and_narrow_tiles_give_the_same_bits() -> None:
    x, weight = _random(130, 100, 5), _random(70, 100, 6)
    narrow = _product(x, weight, _tile(splits=2))
    assert torch.equal(narrow, _product(x, weight, _tile(splits=2, block_rows=128)))
    assert torch.equal(narrow, _product(x, weight, _tile(splits=2, block_rows=128, block_n=128)))


@pytest.mark.usefixtures("fixed_order")
def test_a_broken_row_spoils_no_other() -> None:
    x, weight, tile = _random(6, 64, 7), _random(20, 64, 8), _tile()
    clean = _product(x, weight, tile)
    x[2], x[5, 3] = NAN, float("inf")
    with np.errstate(invalid="ignore"):
        out = _product(x, weight, tile)
    assert out[0, 2].isnan().all()
    assert not out[0, 5].isfinite().any()
    kept = [0, 1, 3, 4]
    assert torch.equal(out[:, kept], clean[:, kept])


def test_only_the_views_given_are_read_and_written() -> None:
    """Rows and weights that lie in larger, poisoned buffers, as the first rows of planes made for more."""
    spacious = torch.full((9, 80), NAN).bfloat16()
    heavy = torch.full((50, 80), NAN).bfloat16()
    x, weight = spacious[:5, :70], heavy[:37, :70]
    x.copy_(_random(5, 70, 9)), weight.copy_(_random(37, 70, 10))
    planes, tile = torch.full((2, 9, 37), 5.0), _tile(splits=2)
    gemm(x, weight, planes[:, :5], tile)
    torch.testing.assert_close(planes[:, :5], gemm_reference(x, weight, 2, 32), atol=2e-5, rtol=1e-5)
    assert (planes[:, 5:] == 5).all()


def test_no_rows_is_no_work() -> None:
    assert _product(_random(0, 64, 1), _random(8, 64, 2), _tile()).shape == (1, 0, 8)


def test_misfits_are_named() -> None:
    x, weight = _random(3, 64, 1), _random(8, 64, 2)
    with pytest.raises(UsageError, match=r"output \[1, 3, 8\].*give \[M, 64\] and \[2, 3, 8\]"):
        gemm(x, weight, torch.empty(1, 3, 8), _tile(splits=2))
    with pytest.raises(UsageError, match="rows are"):
        gemm(x[:, :60], weight, torch.empty(1, 3, 8), _tile())
    with pytest.raises(UsageError, match="contiguous"):
        gemm(x, weight, torch.empty(1, 8, 3).transpose(1, 2), _tile())
