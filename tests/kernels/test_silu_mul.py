"""The gated MLP's middle: accuracy, extremes, the order of the sum, and a row's bits in any company."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.cloud.torch_backend.elementwise import gated_silu
from acespec.kernels.silu_mul import silu_mul, silu_mul_reference
from acespec.proto.errors import UsageError
from tests.kernels.test_add_norm import COMPANY, draw, quiet, same_bits, units_apart, without_triton

TINY = 2.0**-126


def run(partials: torch.Tensor) -> torch.Tensor:
    out = torch.full((partials.shape[1], partials.shape[2] // 2), float("nan"), dtype=torch.bfloat16)
    with quiet():
        silu_mul(partials, out)
    return out


def of(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return run(torch.cat((gate, up))[None, None])[0]


@settings(max_examples=40)
@given(rows=st.integers(1, 3), width=st.integers(1, 150), splits=st.integers(1, 4), seed=st.integers(0, 99))
def test_any_shape_equals_the_reference(rows: int, width: int, splits: int, seed: int) -> None:
    partials = draw(splits, rows, 2 * width, seed=seed)
    apart = units_apart(run(partials), silu_mul_reference(partials))
    # exp is another library's: a value beside a rounding boundary may fall on its other side.
    assert apart.max() <= 1


@pytest.mark.parametrize("width", [40, 96, 576, 1024, 1536, 2100])
def test_all_columns_of_all_blocks(width: int) -> None:
    partials = draw(2, 2, 2 * width, seed=width)
    apart = units_apart(run(partials), silu_mul_reference(partials))
    assert apart.max() <= 1
    assert (apart > 0).float().mean() < 0.01


def test_it_is_right_in_double_precision() -> None:
    gate = torch.cat((torch.linspace(-87, 87, 500), draw(500, seed=1).clamp(-87, 87)))
    up = draw(1000, seed=2)
    exact = gate.double() / (1 + torch.exp(-gate.double())) * up.double()
    assert torch.allclose(of(gate, up).double(), exact, rtol=2**-8, atol=0.0)


def test_the_cpu_engine_computes_the_same() -> None:
    both = draw(3, 192, seed=3)
    assert units_apart(run(both[None]), gated_silu(both).bfloat16()).max() <= 1


def test_huge_values_give_no_nan() -> None:
    gate = torch.tensor([1e30, -1e30, 100.0, -100.0, -200.0, 3e38, -3e38, 0.0, -0.0])
    one = torch.ones(len(gate))
    found = of(gate, one)
    wanted = torch.tensor([1e30, -0.0, 100.0, 0.0, -0.0, 3e38, -0.0, 0.0, -0.0]).bfloat16()
    # silu(-100) is -4e-42, below the normal range: a GPU may give zero.
    assert found[3].abs() <= TINY
    found[3] = 0.0
    assert same_bits(found, wanted)
    assert same_bits(of(gate, -one)[:2], torch.tensor([-1e30, 0.0]).bfloat16())


def test_what_is_not_a_number_stays_in_its_column() -> None:
    gate, up = draw(40, seed=4), draw(40, seed=5)
    clean = of(gate, up)
    gate[3], up[7] = float("nan"), float("nan")
    found = of(gate, up)
    assert found.isnan().nonzero().flatten().tolist() == [3, 7]
    assert same_bits(found[8:], clean[8:])


def test_partials_are_added_in_ascending_order() -> None:
    lossy, plain = torch.tensor([1e8, 1.0, -1e8, 3.0]), torch.tensor([200.0, 0.0, 0.0, 0.0])
    up, gate = (torch.stack(parts, 1)[:, None] for parts in ((plain, lossy), (lossy, plain)))
    assert run(up).item() == 600.0
    assert run(up.flip(0)).item() == 0.0
    assert run(gate).item() == torch.tensor(3 / (1 + math.exp(-3)) * 200).bfloat16().item()
    assert run(gate.flip(0)).item() == 0.0


@pytest.mark.parametrize(("width", "splits"), [(40, 4), (576, 1), (1100, 2)])
def test_a_row_has_the_same_bits_in_any_company(width: int, splits: int) -> None:
    count = COMPANY[-1]
    partials = draw(splits, count, 2 * width, seed=6)
    alone = torch.cat([run(partials[:, [row]]) for row in range(count)])
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    for chosen in [*(torch.arange(m) for m in COMPANY), shuffled, shuffled[:7]]:
        assert same_bits(run(partials[:, chosen]), alone[chosen])


def test_rows_of_a_larger_buffer_beside_bad_rows() -> None:
    buffer = torch.full((3, 8, 80), float("nan"))
    buffer[:, :3] = draw(3, 3, 80, seed=7)
    plain = run(buffer[:, :3].contiguous())
    assert same_bits(run(buffer[:, :3]), plain)
    assert same_bits(run(buffer)[:3], plain)


def test_no_rows_are_no_launch() -> None:
    assert run(torch.empty(2, 0, 80)).shape == (0, 40)


def test_without_triton_the_reference_fills_the_output() -> None:
    partials = draw(2, 3, 80, seed=8)
    with without_triton():
        assert same_bits(run(partials), silu_mul_reference(partials))


def test_an_output_that_a_kernel_would_misread_is_refused() -> None:
    with pytest.raises(UsageError, match="contiguous"):
        silu_mul(torch.zeros(1, 2, 80), torch.empty(40, 2, dtype=torch.bfloat16).T)
