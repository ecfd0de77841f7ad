"""Row rules: found where they exist, refused where they do not; row-wise operations ignore their company."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from acespec.cloud.torch_backend.elementwise import GRAIN, bounded, gated_silu, rms_norm, row_pieces
from acespec.cloud.torch_backend.linear import (
    MOST_ROWS,
    RULES,
    Linear,
    PackedKernel,
    PlainKernel,
    RowRule,
    RowRules,
    find_rule,
)
from tests.cloud.torch_runners import restore_threads

SHAPES = [(64, 128), (100, 60), (576, 960), (1536, 576), (4864, 128)]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    yield
    restore_threads()


def weight(inputs: int, outputs: int) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(inputs)) * float(inputs**-0.5)


class Crooked:
    """A kernel that adds up in another order when `crooked(rows)`."""

    def __init__(self, inputs: int, crooked: Callable[[int], bool]) -> None:
        self.inputs, self.outputs = inputs, 32
        self._weight, self._crooked = weight(inputs, 32), crooked

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        half = self.inputs // 2 if self._crooked(len(x)) else self.inputs // 3
        products = x[:, None].double() * self._weight.double()
        return products[..., :half].sum(-1).float() + products[..., half:].sum(-1).float()

    def region(self) -> tuple[int, int]:
        return self._weight.data_ptr(), self._weight.nbytes


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_rule_exists_and_holds_for_every_row_count(shape: tuple[int, int], threads: int) -> None:
    torch.set_num_threads(threads)
    kernel = PackedKernel(weight(*shape), torch.randn(shape[1]))
    rule = find_rule(kernel)
    assert rule is not None
    linear = Linear(kernel, rule)
    x = torch.randn(2 * MOST_ROWS + 5, shape[0], generator=torch.Generator().manual_seed(3))
    expected = linear(x)
    for rows in (*range(1, 20), 33, 63, 130, 200):
        first = (rows * 7) % 50
        assert torch.equal(linear(x[first : first + rows]), expected[first : first + rows]), rows


@pytest.mark.parametrize("shape", SHAPES)
def test_the_packed_product_is_the_product(shape: tuple[int, int]) -> None:
    matrix, bias, x = weight(*shape), torch.randn(shape[1]), torch.randn(9, shape[0])
    exact = (x.double() @ matrix.double().T + bias).float()
    for kernel in (PackedKernel(matrix, bias), PlainKernel(matrix, bias)):
        torch.testing.assert_close(Linear(kernel, RULES[0])(x), exact, rtol=1e-4, atol=1e-5)


def test_the_plain_kernel_is_also_made_exact() -> None:
    kernel = PlainKernel(weight(96, 64), None)
    rule = find_rule(kernel)
    assert rule is not None
    x = torch.randn(20, 96)
    assert torch.equal(Linear(kernel, rule)(x[:1]), Linear(kernel, rule)(x)[:1])


def test_the_cheapest_rule_that_fits_is_taken() -> None:
    assert find_rule(Crooked(48, lambda rows: False)) == RowRule(1, MOST_ROWS)
    assert find_rule(Crooked(48, lambda rows: rows == 1)) == RowRule(2, MOST_ROWS)
    assert find_rule(Crooked(48, lambda rows: rows < 16)) == RowRule(16, MOST_ROWS)
    assert find_rule(Crooked(48, lambda rows: rows > 16)) == RowRule(16, 16)


def test_a_kernel_that_tells_rows_apart_by_place_has_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    class ByPlace(PlainKernel):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return super().__call__(x) + torch.arange(len(x))[:, None] * 1e-3

    assert find_rule(ByPlace(weight(48, 32), None)) is None
    monkeypatch.setattr("acespec.cloud.torch_backend.linear.best_kernel", ByPlace)
    rules = RowRules()
    rules.linear(weight(48, 32))
    assert rules.failed == [(48, 32)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("width", [7, 100, 1536, 2301])
def test_row_wise_operations_ignore_their_company(width: int, threads: int) -> None:
    torch.set_num_threads(threads)
    gate_up = torch.randn(151, 2 * width, generator=torch.Generator().manual_seed(5)) * 3
    x, scale = gate_up[:, :width].contiguous(), torch.rand(width)
    silu, normed = gated_silu(gate_up), rms_norm(x, scale, 1e-5)
    for first, rows in ((0, 1), (150, 1), (3, 2), (11, 37), (49, 4), (100, 3), (0, 150)):
        part = slice(first, first + rows)
        assert torch.equal(gated_silu(gate_up[part].clone()), silu[part])
        assert torch.equal(rms_norm(x[part].clone(), scale, 1e-5), normed[part])
    torch.testing.assert_close(silu, torch.nn.functional.silu(gate_up[:, :width]) * gate_up[:, width:])
    torch.testing.assert_close(normed, torch.nn.functional.rms_norm(x, (width,), scale, 1e-5), rtol=1e-5, atol=1e-6)


def test_row_pieces_cover_all_rows_below_the_grain() -> None:
    for rows, width in ((1, 10), (500, 100), (7, 2 * GRAIN), (128, 1536)):
        pieces = list(row_pieces(rows, width))
        assert [n for piece in pieces for n in range(rows)[piece]] == list(range(rows))
        assert all((p.stop - p.start) * width < GRAIN or p.stop - p.start == 1 for p in pieces)


def test_bounded_leaves_ordinary_numbers_alone() -> None:
    x = torch.tensor([1.5, -2.0, float("nan"), float("inf"), float("-inf"), 3e38])
    assert bounded(x.clone()).isfinite().all()
    assert torch.equal(bounded(x.clone())[:2], x[:2])
