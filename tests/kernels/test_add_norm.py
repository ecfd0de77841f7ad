"""Residual add and RMSNorm: the reference's values, the order of the sum, and a row's bits in any company."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from triton import knobs

from acespec.kernels.add_norm import (
    add_norm,
    add_norm_reference,
    norm_rows,
    norm_rows_reference,
    sum_partials_reference,
)
from acespec.proto.errors import UsageError

EPS = 1e-5
COMPANY = (*range(1, 10), 16, 33)


def quiet() -> AbstractContextManager[None]:
    """NumPy, which interprets the kernels here, is not to warn of infinities and NaN."""
    return np.errstate(over="ignore", invalid="ignore")


@contextmanager
def without_triton() -> Iterator[None]:
    """While open, launchers see CPU tensors and no interpreter."""
    before = knobs.runtime.interpret
    knobs.runtime.interpret = False
    try:
        yield
    finally:
        knobs.runtime.interpret = before


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int16 if x.dtype == torch.bfloat16 else torch.int32)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(bits(a), bits(b))


def units_apart(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How many bf16 numbers lie between, with both zeros as one."""
    steps = [torch.where(bits(x) < 0, -(bits(x).int() & 0x7FFF), bits(x).int()) for x in (a, b)]
    return (steps[0] - steps[1]).abs()


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    """Numbers whose sums round: normal, over a few orders of magnitude."""
    source = torch.Generator().manual_seed(seed)
    spread = torch.exp2(torch.randint(-6, 7, shape, generator=source).float())
    return torch.randn(shape, generator=source) * spread * scale


def run(
    residual: torch.Tensor, partials: torch.Tensor | None, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    residual = residual.clone()
    out = torch.full(residual.shape, float("nan"), dtype=torch.bfloat16)
    with quiet():
        add_norm(residual, partials, weight, EPS, out)
    return residual, out


@pytest.mark.parametrize("splits", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("width", [1, 40, 96, 576])
def test_it_equals_the_reference(width: int, splits: int) -> None:
    residual, weight = draw(4, width, seed=1), draw(width, seed=2)
    partials = draw(splits, 4, width, seed=3) if splits else None
    total, normed = run(residual, partials, weight)
    wanted_total, wanted = add_norm_reference(residual, partials, weight, EPS)
    assert same_bits(total, wanted_total)
    apart = units_apart(normed, wanted)
    assert apart.max() <= 1
    assert (apart > 0).float().mean() < 0.01


@settings(max_examples=40)
@given(rows=st.integers(1, 4), width=st.integers(1, 150), splits=st.integers(0, 4), seed=st.integers(0, 99))
def test_any_shape_equals_the_reference(rows: int, width: int, splits: int, seed: int) -> None:
    residual, weight = draw(rows, width, seed=seed), draw(width, seed=seed + 1)
    partials = draw(splits, rows, width, seed=seed + 2) if splits else None
    total, normed = run(residual, partials, weight)
    wanted_total, wanted = add_norm_reference(residual, partials, weight, EPS)
    assert same_bits(total, wanted_total)
    assert units_apart(normed, wanted).max() <= 1


def test_partials_are_added_in_ascending_order_and_then_to_the_residual() -> None:
    # 3 is lost in 1e8 from any other order: backwards 0, in pairs 0, onto the residual at once 3.
    residual, weight = torch.full((1, 40), 2.0), torch.ones(40)
    partials = torch.tensor([1e8, 1.0, -1e8, 3.0])[:, None, None].expand(4, 1, 40).contiguous()
    assert run(residual, partials, weight)[0].tolist() == [[5.0] * 40]
    assert run(residual, partials.flip(0), weight)[0].tolist() == [[2.0] * 40]
    assert sum_partials_reference(partials).tolist() == [[3.0] * 40]


def test_with_exact_squares_it_equals_the_reference_bit_for_bit() -> None:
    # Sums of squares of small integers are the same in every order; all else is rounded by IEEE 754.
    source = torch.Generator().manual_seed(0)
    residual = torch.randint(-50, 51, (4, 64), generator=source).float()
    partials = torch.randint(-50, 51, (3, 4, 64), generator=source).float()
    weight = draw(64, seed=19)
    assert same_bits(run(residual, partials, weight)[1], add_norm_reference(residual, partials, weight, EPS)[1])


def test_the_weight_comes_last() -> None:
    residual, weight = torch.full((1, 40), 1e-10), torch.full((40,), 2e36)
    assert run(residual, None, weight)[1].isfinite().all()


def test_the_norm_is_right_in_double_precision() -> None:
    residual, partials, weight = draw(3, 96, seed=4), draw(2, 3, 96, seed=5), draw(96, seed=6)
    total, normed = run(residual, partials, weight)
    exact = total.double() / torch.sqrt(total.double().square().mean(-1, keepdim=True) + EPS) * weight.double()
    assert torch.allclose(normed.double(), exact, rtol=2**-8, atol=0.0)


@pytest.mark.parametrize(("width", "splits"), [(40, 3), (96, 0), (576, 2)])
def test_a_row_has_the_same_bits_in_any_company(width: int, splits: int) -> None:
    count = COMPANY[-1]
    residual, weight = draw(count, width, seed=7), draw(width, seed=8)
    partials = draw(splits, count, width, seed=9) if splits else None

    def rows(chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return run(residual[chosen], None if partials is None else partials[:, chosen], weight)

    alone = [rows(torch.tensor([row])) for row in range(count)]
    totals, normed = (torch.cat(parts) for parts in zip(*alone, strict=True))
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    for chosen in [*(torch.arange(m) for m in COMPANY), shuffled, shuffled[:7]]:
        found = rows(chosen)
        assert same_bits(found[0], totals[chosen])
        assert same_bits(found[1], normed[chosen])


def test_rows_of_a_larger_buffer_beside_bad_rows() -> None:
    residual, weight = draw(3, 40, seed=10), draw(40, seed=11)
    buffer = torch.full((2, 8, 40), float("nan"))
    buffer[:, :3] = draw(2, 3, 40, seed=12)
    plain = run(residual, buffer[:, :3].contiguous(), weight)
    within = run(residual, buffer[:, :3], weight)
    padded = run(torch.cat((residual, torch.full((5, 40), float("inf")))), buffer, weight)
    for part in range(2):
        assert same_bits(plain[part], within[part])
        assert same_bits(plain[part], padded[part][:3])
    assert padded[1][3:].isnan().all()


@pytest.mark.parametrize("splits", [0, 1, 3])
def test_chosen_rows_get_the_bits_of_add_norm(splits: int) -> None:
    residual, weight = draw(6, 96, seed=13), draw(96, seed=14)
    weight[0], weight[1] = float("inf"), -1.0
    partials = draw(splits, 6, 96, seed=15) if splits else None
    before = residual.clone()
    chosen = torch.tensor([5, -1, 0, 5, 2, -1, -7], dtype=torch.int32)
    out = torch.full((len(chosen), 96), float("nan"), dtype=torch.bfloat16)
    with quiet():
        norm_rows(residual, partials, chosen, weight, EPS, out)
    assert same_bits(residual, before)
    everything = run(residual, partials, weight)[1]
    for row, source in zip(out, chosen.tolist(), strict=True):
        assert same_bits(row, everything[source] if source >= 0 else torch.zeros(96, dtype=torch.bfloat16))
    assert units_apart(out, norm_rows_reference(residual, partials, chosen, weight, EPS)).max() <= 1


def test_no_rows_are_no_launch() -> None:
    nothing = torch.empty(0, 40)
    add_norm(nothing, torch.empty(2, 0, 40), torch.ones(40), EPS, nothing.bfloat16())
    norm_rows(torch.ones(1, 40), None, torch.empty(0, dtype=torch.int32), torch.ones(40), EPS, nothing.bfloat16())


def test_without_triton_the_reference_fills_the_outputs() -> None:
    residual, partials, weight = draw(3, 40, seed=16), draw(2, 3, 40, seed=17), draw(40, seed=18)
    total, wanted = add_norm_reference(residual, partials, weight, EPS)
    chosen, some = torch.tensor([2, -1], dtype=torch.int32), torch.empty(2, 40, dtype=torch.bfloat16)
    out = torch.empty(3, 40, dtype=torch.bfloat16)
    with without_triton():
        norm_rows(residual, partials, chosen, weight, EPS, some)
        add_norm(residual, partials, weight, EPS, out)
    assert same_bits(residual, total)
    assert same_bits(out, wanted)
    assert same_bits(some, torch.stack((wanted[2], torch.zeros_like(wanted[2]))))


def test_tensors_that_a_kernel_would_misread_are_refused() -> None:
    x, weight = torch.ones(2, 40), torch.ones(40)
    with pytest.raises(UsageError, match="contiguous"):
        add_norm(torch.ones(40, 2).T, None, weight, EPS, x.bfloat16())
    with pytest.raises(UsageError, match="contiguous"):
        add_norm(x, torch.ones(2, 2, 80)[..., :40], weight, EPS, x.bfloat16())
    with pytest.raises(UsageError, match="apart"):
        add_norm(x, torch.ones(2, 90).as_strided((2, 2, 40), (90, 40, 1)), weight, EPS, x.bfloat16())
