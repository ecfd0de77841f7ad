"""Attention and combine against a plain softmax of each row over its own slots."""

from __future__ import annotations

import pytest
import torch

from acespec.kernels.attention import attend_reference, work_on
from acespec.kernels.attention_combine import combine_reference
from acespec.kernels.attention_plan import plan_attention
from tests.kernels.attention_lab import ROOT, SPLIT, Lab, Session, Shape, chain, laid

TREE = (ROOT, 0, 1, 1, 0, 4, 2)


def assert_close(out: torch.Tensor, expected: torch.Tensor) -> None:
    """Weights are bf16, which the interpreter cuts off instead of rounding."""
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("kv_heads", "group", "head"), [(1, 1, 16), (3, 3, 64), (1, 5, 80), (2, 4, 128), (1, 8, 96), (2, 2, 20)]
)
def test_shapes_of_heads(kv_heads: int, group: int, head: int) -> None:
    lab = laid(chain(130, 3, 1), Session(61, TREE, 2), shape=Shape(kv_heads, group, head), capacity=512)
    assert_close(lab.run(), lab.expected())


@pytest.mark.parametrize(
    ("page", "poison"), [(16, float("nan")), (32, float("inf")), (64, float("-inf")), (128, float("nan"))]
)
def test_pages_and_stale_slots(page: int, poison: float) -> None:
    lab = laid(chain(190, 4, 1), Session(126, TREE, 2), chain(0, 1, 3), shape=Shape(page=page), poison=poison)
    assert_close(lab.run(), lab.expected())


@pytest.mark.parametrize("start", [0, 1, 63, 64, 127, 128, 129, 255])
def test_windows_across_edges_of_tiles_and_splits(start: int) -> None:
    lab = laid(chain(start, 3, 1), Session(start, TREE, 2))
    assert_close(lab.run(), lab.expected())


def test_a_prefill_chunk_of_more_rows_than_a_tile_takes() -> None:
    lab = laid(chain(64, 35), shape=Shape(kv_heads=1))
    assert_close(lab.run(), lab.expected())


@pytest.mark.parametrize("lead", [1, 2, None])
def test_references_agree(lead: int | None) -> None:
    lab = laid(chain(290, 3, 1), Session(260, TREE, 2), chain(0, 2, 3), shape=Shape(2, 3, 20))
    q = torch.stack(lab.queries)
    plan = plan_attention(lab.spans, group=3, page=64, rows=len(q) + 1, split=SPLIT, lead=lead)
    parts, stats = torch.full((plan.n_parts, 6, 20), torch.nan), torch.full((plan.n_parts, 6, 2), torch.nan)
    attend_reference(q, lab.pool[0], lab.pool[1], work_on(plan), 20**-0.5, 64, parts, stats, split=SPLIT)
    out = torch.full((len(q) + 1, 120), torch.nan)
    combine_reference(parts, stats, work_on(plan), out)
    torch.testing.assert_close(out[:-1], lab.expected())
    assert (out[-1] == 0).all()


def test_padding_rows_get_zeros() -> None:
    lab = laid(chain(5, 2))
    out = lab.run(pad=3)
    assert (out[2:] == 0).all()
    assert_close(out[:2], lab.expected())


def test_a_row_of_huge_numbers_stays_finite() -> None:
    lab = Lab()
    lab.add(chain(70, 3), scale={1: 1e15})
    out = lab.run()
    assert out.isfinite().all()
    assert out[1].abs().max() > 1e14


def test_a_row_whose_scores_are_all_hugely_negative() -> None:
    lab = laid(chain(0, 1), shape=Shape(1, 1))
    slot = lab.spans[0].segments[0].tail[0]
    lab.pool[0, slot], lab.queries[0] = 1e15, torch.full_like(lab.queries[0], -1e15)
    assert_close(lab.run(), lab.pool[1, slot].float())


def test_outputs_are_rounded_to_bf16() -> None:
    lab = laid(chain(5, 2))
    assert_close(lab.run(dtype=torch.bfloat16).float(), lab.run())
