"""Tiles follow from the weight's shape, and their ranges of k cover every input once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.kernels.tiles import BLOCK_K, Kind, cdiv, gemm_tile, split_length, splits_of

kinds = st.sampled_from(("bf16", "w4"))
sizes = st.integers(1, 200_000)


@given(sizes, sizes, kinds)
def test_wide_and_narrow_sum_in_the_same_order(outputs: int, inputs: int, kind: Kind) -> None:
    narrow, wide = gemm_tile(outputs, inputs, kind), gemm_tile(outputs, inputs, kind, wide=True)
    assert (narrow.splits, narrow.block_k) == (wide.splits, wide.block_k)
    assert (narrow.block_rows, wide.block_rows) == (64, 128)


@given(sizes, sizes, kinds)
def test_no_range_is_empty_and_none_is_left_out(outputs: int, inputs: int, kind: Kind) -> None:
    splits = splits_of(outputs, inputs, kind)
    length = split_length(inputs, splits, BLOCK_K[kind])
    assert length % BLOCK_K[kind] == 0
    assert (splits - 1) * length < inputs <= splits * length


@pytest.mark.parametrize("kind", ["bf16", "w4"])
@pytest.mark.parametrize("shape", [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096)])
def test_an_8b_model_keeps_the_multiprocessors_busy(shape: tuple[int, int], kind: Kind) -> None:
    tile = gemm_tile(*shape, kind)
    programs = cdiv(shape[0], tile.block_n) * tile.splits
    assert programs >= 120
    # The last wave of two programs a multiprocessor is not nearly empty.
    assert programs / (264 * cdiv(programs, 264)) > 0.45


def test_small_weights_are_not_cut_into_crumbs() -> None:
    assert gemm_tile(64, 32).splits == gemm_tile(1, 1).splits == gemm_tile(96, 192, "w4").splits == 1
