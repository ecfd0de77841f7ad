"""Embeddings come over exactly, whatever they hold and wherever they stand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.kernels.embed import embed, embed_reference
from acespec.proto.errors import UsageError
from tests.kernels.test_add_norm import COMPANY, quiet, same_bits, without_triton


def table(vocabulary: int, width: int, seed: int = 0) -> torch.Tensor:
    """Any 16 bits but numbers below the normal range, which the interpreter widens wrongly: NaN and infinities too."""
    source = torch.Generator().manual_seed(seed)
    shape = (vocabulary, width)
    words = torch.randint(-(2**15), 2**15, shape, generator=source, dtype=torch.int16)
    return torch.where(words & 0x7F80 == 0, words & -(2**15), words).view(torch.bfloat16)


def run(tokens: list[int], weight: torch.Tensor) -> torch.Tensor:
    out = torch.full((len(tokens), weight.shape[1]), float("nan"))
    with quiet():
        embed(torch.tensor(tokens, dtype=torch.int32), weight, out)
    return out


@settings(max_examples=30)
@given(tokens=st.lists(st.integers(-2, 29), min_size=1, max_size=6), width=st.integers(1, 150))
def test_any_shape_is_widened_exactly(tokens: list[int], width: int) -> None:
    weight = table(30, width, seed=width)
    # A bf16 number is the upper half of the fp32 number.
    wide = (weight.view(torch.int16).int() << 16).view(torch.float32)
    for row, token in zip(run(tokens, weight), tokens, strict=True):
        assert same_bits(row, wide[token] if token >= 0 else torch.zeros(width))


@pytest.mark.parametrize("width", [576, 1024, 1100])
def test_all_columns_of_all_blocks_and_the_reference(width: int) -> None:
    weight = torch.randn(5, width, generator=torch.Generator().manual_seed(1)).bfloat16()
    tokens = [4, 0, -1, 4]
    assert same_bits(run(tokens, weight), embed_reference(torch.tensor(tokens), weight))


def test_a_row_has_the_same_bits_in_any_company() -> None:
    weight = table(50, 96)
    tokens = torch.randint(0, 50, (COMPANY[-1],), generator=torch.Generator().manual_seed(2)).tolist()
    alone = torch.cat([run([token], weight) for token in tokens])
    for count in COMPANY:
        assert same_bits(run(tokens[:count], weight), alone[:count])
    assert same_bits(run(tokens[::-1], weight), alone.flip(0))


def test_no_rows_are_no_launch() -> None:
    assert run([], table(5, 40)).shape == (0, 40)


def test_without_triton_the_reference_fills_the_output() -> None:
    weight = table(5, 40)
    wanted = run([3, -1], weight)
    with without_triton():
        assert torch.equal(run([3, -1], weight).nan_to_num(), wanted.nan_to_num())


def test_a_table_that_a_kernel_would_misread_is_refused() -> None:
    with pytest.raises(UsageError, match="contiguous"):
        run([0], table(40, 5).T)
