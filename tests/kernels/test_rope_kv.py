"""Bias, bound, head norms, rotation and the write into the pool, against the reference and against the CPU engine."""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.cloud.torch_backend.elementwise import bounded, rms_norm
from acespec.cloud.torch_backend.rope import rotate
from acespec.kernels.rope_kv import BOUND, rope_kv, rope_kv_reference
from acespec.proto.errors import UsageError
from tests.kernels.test_add_norm import COMPANY, EPS, bits, draw, quiet, same_bits, units_apart, without_triton

POISON = torch.tensor([0x7FA5], dtype=torch.int16).view(torch.bfloat16)
"""A NaN of its own, so that a slot that was written, even with a NaN, shows."""

Result = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Case:
    """Inputs of a launch; `pools` are filled with poison."""

    partials: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    heads: int
    kv_heads: int
    bias: torch.Tensor | None = None
    q_norm: torch.Tensor | None = None
    k_norm: torch.Tensor | None = None
    pool_slots: int = field(default=48)

    @property
    def dim(self) -> int:
        return 2 * self.cos.shape[1]

    def rows(self, chosen: torch.Tensor) -> Case:
        return replace(
            self,
            partials=self.partials[:, chosen].contiguous(),
            positions=self.positions[chosen],
            slots=self.slots[chosen],
        )

    def run(self) -> Result:
        """(q, k pool, v pool)."""
        count = self.partials.shape[1]
        q = POISON.repeat(count, self.heads, self.dim)
        pools = [POISON.repeat(self.pool_slots, self.kv_heads, self.dim) for _ in range(2)]
        with quiet():
            rope_kv(*self._arguments(), self.slots, q, *pools)
        return q, pools[0], pools[1]

    def reference(self) -> Result:
        """(queries, keys, values), by row."""
        return rope_kv_reference(*self._arguments(), (self.heads, self.kv_heads))

    def by_row(self) -> Result:
        """What `run` made, keys and values in the order of rows, zeros if they have no slot."""
        q, *pools = self.run()
        kept = (self.slots >= 0)[:, None, None]
        keys, values = (torch.where(kept, pool[self.slots.clamp(min=0).long()], 0) for pool in pools)
        return q, keys, values

    def _arguments(self) -> tuple:
        return (
            self.partials,
            self.bias,
            self.q_norm,
            self.k_norm,
            EPS,
            self.cos,
            self.sin,
            self.positions,
        )


def case(
    rows: int = 4,
    heads: int = 4,
    kv_heads: int = 2,
    dim: int = 16,
    splits: int = 2,
    *,
    bias: bool = False,
    norms: bool = False,
    seed: int = 0,
) -> Case:
    width = (heads + 2 * kv_heads) * dim
    source = torch.Generator().manual_seed(seed)
    angles = torch.rand(64, dim // 2, generator=source) * 50
    return Case(
        partials=draw(splits, rows, width, seed=seed + 1),
        cos=angles.cos(),
        sin=angles.sin(),
        positions=torch.randint(0, 64, (rows,), generator=source, dtype=torch.int32),
        slots=torch.randperm(48, generator=source)[:rows].int(),
        heads=heads,
        kv_heads=kv_heads,
        bias=draw(width, seed=seed + 2) if bias else None,
        q_norm=draw(dim, seed=seed + 3) if norms else None,
        k_norm=draw(dim, seed=seed + 4) if norms else None,
    )


@pytest.mark.parametrize("dim", [16, 64, 80, 128])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (9, 3), (3, 1), (16, 16)])
@pytest.mark.parametrize(("splits", "bias"), [(1, False), (3, True)])
def test_it_equals_the_reference_bit_for_bit(dim: int, heads: int, kv_heads: int, splits: int, bias: bool) -> None:
    inputs = case(2, heads, kv_heads, dim, splits, bias=bias, seed=dim + heads)
    for found, wanted in zip(inputs.by_row(), inputs.reference(), strict=True):
        assert same_bits(found, wanted)


@pytest.mark.parametrize("dim", [16, 64, 80, 128])
@pytest.mark.parametrize("bias", [False, True])
def test_head_norms_are_within_a_unit_of_the_reference(dim: int, bias: bool) -> None:
    inputs = case(3, 6, 2, dim, splits=2, bias=bias, norms=True, seed=dim)
    q, keys, values = inputs.by_row()
    wanted_q, wanted_keys, wanted_values = inputs.reference()
    assert same_bits(values, wanted_values)
    for found, wanted in ((q, wanted_q), (keys, wanted_keys)):
        # A difference of two rotated terms may cancel, so a unit is that of the larger term.
        error = (found.float() - wanted.float()).abs()
        assert (error <= wanted.float().abs().amax(-1, keepdim=True) * 2**-8).all()
        assert (units_apart(found, wanted) > 0).float().mean() < 0.01


@settings(max_examples=15)
@given(
    rows=st.integers(1, 3),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 5),
    half=st.integers(1, 40),
    splits=st.integers(1, 4),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_shape_equals_the_reference(
    rows: int, kv_heads: int, group: int, half: int, splits: int, bias: bool, seed: int
) -> None:
    inputs = case(rows, kv_heads * group, kv_heads, 2 * half, splits, bias=bias, seed=seed)
    for found, wanted in zip(inputs.by_row(), inputs.reference(), strict=True):
        assert same_bits(found, wanted)


@pytest.mark.parametrize("norms", [False, True])
def test_the_cpu_engine_computes_the_same(norms: bool) -> None:
    inputs = case(3, 4, 2, 64, splits=1, bias=True, norms=norms, seed=5)
    inputs.partials[0, 0, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    assert inputs.bias is not None
    x = bounded(inputs.partials[0] + inputs.bias).view(3, 8, 64)
    at = inputs.positions.long()
    cos, sin = inputs.cos[at], inputs.sin[at]
    angles = torch.cat((cos, cos), -1)[:, None], torch.cat((-sin, sin), -1)[:, None]
    normed = x[:, :6]
    if inputs.q_norm is not None and inputs.k_norm is not None:
        parts = zip((x[:, :4], x[:, 4:6]), (inputs.q_norm, inputs.k_norm), strict=True)
        normed = torch.cat([rms_norm(p.reshape(-1, 64), w, EPS).view(p.shape) for p, w in parts], 1)
    turned = rotate(normed, *angles).bfloat16()
    q, keys, values = inputs.by_row()
    assert same_bits(values, x[:, 6:].bfloat16())
    for found, wanted in ((q, turned[:, :4]), (keys, turned[:, 4:])):
        assert (units_apart(found, wanted) > 0).float().mean() <= (0.02 if norms else 0.0)


def test_partials_are_added_in_ascending_order_and_the_bias_last() -> None:
    inputs = case(1, 1, 1, 16, splits=4)
    inputs.partials[:] = torch.tensor([1e8, 1.0, -1e8, 3.0])[:, None, None]
    ones = torch.full((48,), 2.0)
    assert (replace(inputs, bias=ones).by_row()[2] == 5).all()
    assert (replace(inputs, bias=ones, partials=inputs.partials.flip(0)).by_row()[2] == 2).all()


@pytest.mark.parametrize(("dim", "bias", "norms", "splits"), [(64, False, False, 1), (80, True, True, 3)])
def test_a_row_has_the_same_bits_in_any_company(dim: int, bias: bool, norms: bool, splits: int) -> None:
    count = COMPANY[-1]
    inputs = case(count, 3, 1, dim, splits, bias=bias, norms=norms, seed=9)
    together = inputs.by_row()
    alone = [torch.tensor([row]) for row in (1, 8, 15, 32)]
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(0))[:16]
    for chosen in [*alone, *(torch.arange(m) for m in COMPANY[:-1]), shuffled]:
        for found, wanted in zip(inputs.rows(chosen).by_row(), together, strict=True):
            assert same_bits(found, wanted[chosen])


def test_only_the_slots_of_rows_are_written() -> None:
    inputs = case(6, 4, 2, 80, seed=3)
    slots = torch.tensor([7, -1, 0, 47, -1, 13], dtype=torch.int32)
    q, *pools = replace(inputs, slots=slots).run()
    assert same_bits(q, inputs.reference()[0])
    written = sorted(slots[slots >= 0].tolist())
    for pool, wanted in zip(pools, inputs.reference()[1:], strict=True):
        touched = (bits(pool) != bits(POISON)).flatten(1)
        assert touched.all(1).nonzero().flatten().tolist() == written
        assert touched.any(1).sum() == len(written)
        assert same_bits(pool[slots[slots >= 0].long()], wanted[slots >= 0])


def test_padding_changes_nothing() -> None:
    inputs = case(3, 4, 2, 16, seed=4)
    padding = torch.full((2, 5, inputs.partials.shape[2]), float("nan"))
    padded = replace(
        inputs,
        partials=torch.cat((inputs.partials, padding), 1),
        positions=torch.cat((inputs.positions, torch.zeros(5, dtype=torch.int32))),
        slots=torch.cat((inputs.slots, torch.full((5,), -1, dtype=torch.int32))),
    )
    plain, found = inputs.run(), padded.run()
    assert same_bits(found[0][:3], plain[0])
    assert same_bits(found[1], plain[1])
    assert same_bits(found[2], plain[2])
    within = replace(padded, partials=padded.partials[:, :3], positions=inputs.positions, slots=inputs.slots)
    for a, b in zip(within.run(), plain, strict=True):
        assert same_bits(a, b)


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("splits", [1, 2])
def test_hostile_sums_stay_bounded(norms: bool, splits: int) -> None:
    inputs = case(2, 4, 2, 16, splits, norms=norms, seed=6)
    bad = torch.tensor([float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 2e15, -2e15, 1e15])
    inputs.partials[0, 0] = bad.repeat(inputs.partials.shape[2] // 8)
    if splits == 2:
        inputs.partials[1, 0] = bad.roll(1).repeat(inputs.partials.shape[2] // 8)
    found, wanted = inputs.by_row(), inputs.reference()
    assert all(part.isfinite().all() for part in found)
    assert all(part.abs().max() <= 2.5 * BOUND for part in (found if not norms else found[2:]))
    assert (units_apart(found[0], wanted[0]) > 0).float().mean() <= (0.05 if norms else 0)
    assert same_bits(found[2], wanted[2])
    if splits == 1:
        limit = torch.tensor([1, 1, -1, 1, -1, 1, -1, 1]).repeat(4).view(2, 16) * BOUND
        assert same_bits(found[2][0], limit.bfloat16())


def test_positions_far_out() -> None:
    far = 2**20
    rates = 500000.0 ** -(torch.arange(0, 16, 2) / 16)
    inputs = case(3, 4, 2, 16, seed=7)
    angles = torch.outer(torch.arange(far, dtype=torch.float32), rates).double()
    positions = torch.tensor([far - 1, 131071, 0], dtype=torch.int32)
    moved = replace(inputs, cos=angles.cos().float(), sin=angles.sin().float(), positions=positions)
    for found, wanted in zip(moved.by_row(), moved.reference(), strict=True):
        assert same_bits(found, wanted)
    # A position's bits follow from its angles, not from where they stand in the table.
    few = replace(moved, cos=moved.cos[positions.long()], sin=moved.sin[positions.long()])
    again = replace(few, positions=torch.tensor([0, 1, 2], dtype=torch.int32))
    for found, wanted in zip(again.by_row(), moved.by_row(), strict=True):
        assert same_bits(found, wanted)


def test_slots_beyond_two_to_the_31_elements() -> None:
    inputs = case(2, 2, 1, 16, seed=8)
    last = 2**31 // 16 + 5
    try:
        # Only the pages that are touched take memory.
        memory = mmap.mmap(-1, 2 * (last + 1) * 32, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        pytest.skip("this machine promises no 9 GB of address space")
    pools = torch.frombuffer(memory, dtype=torch.bfloat16).view(2, last + 1, 1, 16)
    q = torch.empty(2, 2, 16, dtype=torch.bfloat16)
    slots = torch.tensor([last, 3], dtype=torch.int32)
    with quiet():
        rope_kv(
            inputs.partials,
            None,
            None,
            None,
            EPS,
            inputs.cos,
            inputs.sin,
            inputs.positions,
            slots,
            q,
            pools[0],
            pools[1],
        )
    for pool, wanted in zip(pools, inputs.reference()[1:], strict=True):
        assert same_bits(pool[slots.long()], wanted)


def test_no_rows_are_no_launch() -> None:
    assert case(0).run()[0].shape == (0, 4, 16)


def test_without_triton_the_reference_fills_the_outputs() -> None:
    inputs = case(3, bias=True, norms=True)
    inputs = replace(inputs, slots=torch.tensor([5, -1, 0], dtype=torch.int32))
    with without_triton():
        q, k_pool, v_pool = inputs.run()
    queries, keys, values = inputs.reference()
    assert same_bits(q, queries)
    for pool, wanted in ((k_pool, keys), (v_pool, values)):
        assert same_bits(pool[[5, 0]], wanted[[0, 2]])
        assert int((bits(pool) != bits(POISON)).flatten(1).any(1).sum()) == 2


def test_a_pool_that_a_kernel_would_misread_is_refused() -> None:
    inputs = case(1)
    strided = torch.zeros(2, 48, 16, dtype=torch.bfloat16).transpose(0, 1)
    q = torch.empty(1, 4, 16, dtype=torch.bfloat16)
    with pytest.raises(UsageError, match="contiguous"):
        rope_kv(*inputs._arguments(), inputs.slots, q, strided, strided)


def test_the_bound_is_the_cpu_engine_s() -> None:
    x = torch.tensor([float("nan"), 1e30, -1e30])
    assert bounded(x).tolist() == [np.float32(BOUND), np.float32(BOUND), -np.float32(BOUND)]
