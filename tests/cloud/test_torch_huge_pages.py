"""The huge-page hint covers whole blocks inside the weights and nothing outside them."""

from __future__ import annotations

import torch

from acespec.cloud.torch_backend.huge_pages import BLOCK, use_huge_pages, whole_blocks


def test_blocks_are_aligned_and_inside() -> None:
    assert whole_blocks([(BLOCK + 1, BLOCK)]) == []
    assert whole_blocks([(BLOCK, BLOCK)]) == [BLOCK]
    assert whole_blocks([(BLOCK - 64, 3 * BLOCK)]) == [BLOCK, 2 * BLOCK]


def test_neighbours_are_joined_and_strangers_are_not() -> None:
    half = BLOCK // 2
    assert whole_blocks([(3 * half + 128, half), (BLOCK, half)]) == [BLOCK]
    assert whole_blocks([(BLOCK, half), (9 * BLOCK + half, half)]) == []


def test_the_hint_changes_no_value() -> None:
    tensor = torch.arange(4 * BLOCK // 4)
    before = tensor.clone()
    use_huge_pages([(tensor.data_ptr(), tensor.nbytes), (BLOCK, BLOCK)])
    assert torch.equal(tensor, before)
