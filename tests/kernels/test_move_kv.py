"""Accepted branches move to their pages: every bit of them, over all layers, and nothing else."""

from __future__ import annotations

import mmap

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.kernels.move_kv import move_kv, move_kv_reference
from acespec.proto.errors import UsageError
from tests.kernels.test_add_norm import same_bits, without_triton


def pool(layers: int = 2, slots: int = 12, kv_heads: int = 2, dim: int = 16, seed: int = 0) -> torch.Tensor:
    """Any 16 bits: numbers, infinities, NaN of all kinds."""
    source = torch.Generator().manual_seed(seed)
    shape = (layers, 2, slots, kv_heads, dim)
    return torch.randint(-(2**15), 2**15, shape, generator=source, dtype=torch.int16).view(torch.bfloat16)


def ints(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def moved(before: torch.Tensor, source: list[int], target: list[int]) -> torch.Tensor:
    after = before.clone()
    move_kv(after, ints(source), ints(target))
    return after


@st.composite
def moves(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Pairs as the launcher allows them, some onto themselves, some to be skipped."""
    order = draw(st.permutations(range(12)))
    pairs = list(zip(order[:4], order[4:8], strict=True))[: draw(st.integers(0, 4))]
    pairs += [(slot, slot) for slot in order[8 : draw(st.integers(8, 10))]]
    pairs += draw(st.lists(st.sampled_from([(-1, order[0]), (order[5], -1), (-1, -1), (-9, order[7])]), max_size=3))
    pairs = draw(st.permutations(pairs))
    return [old for old, _ in pairs], [new for _, new in pairs]


@settings(max_examples=40)
@given(pairs=moves(), layers=st.integers(1, 3), kv_heads=st.integers(1, 3), dim=st.sampled_from([16, 64, 80, 128]))
def test_any_moves_equal_the_reference(
    pairs: tuple[list[int], list[int]], layers: int, kv_heads: int, dim: int
) -> None:
    before = pool(layers, 12, kv_heads, dim)
    wanted = before.clone()
    move_kv_reference(wanted, ints(pairs[0]), ints(pairs[1]))
    assert same_bits(moved(before, *pairs), wanted)


@pytest.mark.parametrize(("kv_heads", "dim"), [(3, 80), (8, 128), (9, 128), (5, 256)])
def test_every_element_of_a_slot_moves_and_no_other(kv_heads: int, dim: int) -> None:
    before = pool(2, 6, kv_heads, dim)
    after = moved(before, [4, 5], [0, 2])
    for slot, origin in enumerate([4, 1, 5, 3, 4, 5]):
        assert same_bits(after[:, :, slot], before[:, :, origin])


def test_skipped_pairs_and_pairs_onto_themselves_change_nothing() -> None:
    before = pool()
    assert same_bits(moved(before, [-1, 3, -1, 5], [2, -1, -1, 5]), before)
    assert same_bits(moved(before, [], []), before)


def test_the_length_of_the_list_changes_no_bit() -> None:
    before = pool()
    wanted = moved(before, [8, 9], [1, 2])
    assert same_bits(moved(moved(before, [8], [1]), [9], [2]), wanted)
    assert same_bits(moved(before, [9, -1, 8, *[-1] * 30], [2, 4, 1, *[-1] * 30]), wanted)


def test_slots_beyond_two_to_the_31_elements() -> None:
    last = 2**31 // 16 + 5
    try:
        # Only the pages that are touched take memory.
        memory = mmap.mmap(-1, 2 * (last + 1) * 32, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        pytest.skip("this machine promises no 9 GB of address space")
    large = torch.frombuffer(memory, dtype=torch.bfloat16).view(1, 2, last + 1, 1, 16)
    row = pool(1, 1, 1, 16)[:, :, 0]
    large[:, :, last] = row
    move_kv(large, ints([last]), ints([3]))
    assert same_bits(large[:, :, 3], row)
    move_kv(large, ints([3]), ints([last - 1]))
    assert same_bits(large[:, :, last - 1], row)


def test_without_triton_the_reference_moves() -> None:
    before = pool()
    wanted = moved(before, [8, -1], [1, 2])
    with without_triton():
        assert same_bits(moved(before, [8, -1], [1, 2]), wanted)


def test_a_pool_that_a_kernel_would_misread_is_refused() -> None:
    with pytest.raises(UsageError, match="contiguous"):
        move_kv(pool()[..., :8], ints([0]), ints([1]))
