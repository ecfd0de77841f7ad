"""The fused head draws what `acespec.proto.sampling.sample` draws from the logits of the same product."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from acespec.cloud.draw_rule import DrawRule
from acespec.kernels.interpreter import fixed_order_dot
from acespec.kernels.lm_head import head_argmax, head_argmax_reference
from acespec.kernels.row_params import RowParams, row_params, to_device
from acespec.kernels.tiles import GemmTile, gemm_tile
from acespec.proto.sampling import sample
from acespec.proto.sampling_params import SamplingParams

NARROW = GemmTile(block_n=32, block_rows=8, block_k=16, splits=1, stages=1, warps=4)
WIDE = replace(NARROW, block_rows=16)
UNTOUCHED = -77.0


@dataclass(frozen=True)
class Case:
    """Rows, head and how each row is drawn."""

    x: torch.Tensor
    weight: torch.Tensor
    vocab_size: int
    draws: list[tuple[SamplingParams, int, int]]

    def params(self) -> RowParams:
        return to_device(row_params([(DrawRule(p, seed=seed, prompt_len=0), at) for p, seed, at in self.draws]))

    def only(self, row: int) -> Case:
        return replace(self, x=self.x[row : row + 1], draws=self.draws[row : row + 1])

    def run(self, tile: GemmTile = NARROW, keep: list[int] | None = None) -> tuple[list[int], torch.Tensor]:
        """(ids, logits with two more lines and columns than needed)."""
        rows, vocab = len(self.x), len(self.weight)
        keep = list(range(rows)) if keep is None else keep
        tiles = -(-vocab // tile.block_n) + 1
        logits = torch.full((rows + 2, vocab + 2), UNTOUCHED)
        ids = torch.full((rows + 1,), -5, dtype=torch.int32)
        scratch = torch.full((rows, tiles), math.nan), torch.full((rows, tiles), 12345, dtype=torch.int32)
        kept = torch.tensor(keep, dtype=torch.int32)
        with fixed_order_dot(), np.errstate(all="ignore"):
            head_argmax(self.x, self.weight, self.vocab_size, self.params(), kept, *scratch, logits, ids[:rows], tile)
        assert ids[-1] == -5
        assert (logits[:, vocab:] == UNTOUCHED).all()
        return ids[:rows].tolist(), logits

    def sampled(self, logits: torch.Tensor) -> list[int]:
        """What the reference draws from the first lines."""
        return [
            sample(line, params, seed, at, vocab_size=self.vocab_size)
            for line, (params, seed, at) in zip(logits[:, : len(self.weight)].numpy(), self.draws, strict=False)
        ]


def any_case(rows: int, vocab: int = 150, vocab_size: int = 141, width: int = 40, whole: bool = False) -> Case:
    """Logits of a few units; whole numbers if sums are to be exact in every order."""
    dice = np.random.default_rng(rows)
    x, weight = dice.normal(0, 1, (rows, width)), dice.normal(0, 0.5, (vocab, width))
    if whole:
        x, weight = np.round(x), np.round(weight * 2)
    heats = [SamplingParams(temperature=t) for t in (0.0, 0.7, 1.0, 2.5)]
    draws = [(heats[row % 4], int(dice.integers(1 << 62)) * 4 + 3, int(dice.integers(1 << 30))) for row in range(rows)]
    return Case(torch.tensor(x).bfloat16(), torch.tensor(weight).bfloat16(), vocab_size, draws)


@pytest.mark.parametrize("rows", [1, 5, 8, 19])
def test_ids_are_the_samples_of_the_stored_logits(rows: int) -> None:
    case = any_case(rows)
    ids, logits = case.run()
    assert ids == case.sampled(logits)
    assert torch.allclose(logits[:rows, :150], case.x.float() @ case.weight.float().T, rtol=1e-4, atol=1e-4)
    assert (logits[rows:] == UNTOUCHED).all()


def test_many_seeds() -> None:
    """Noise that decides: nearly equal logits, so that every token is drawn sometimes."""
    case = any_case(40, width=16)
    case = replace(case, x=case.x * 0.01)
    ids, logits = case.run(WIDE)
    assert ids == case.sampled(logits)
    assert len(set(ids)) > 15


def test_a_row_is_drawn_alike_alone_in_company_and_in_wide_tiles() -> None:
    case = any_case(11)
    ids, logits = case.run()
    wide_ids, wide_logits = case.run(WIDE)
    assert wide_ids == ids
    assert torch.equal(wide_logits, logits)
    for row in range(0, 11, 3):
        (alone,), line = case.only(row).run()
        assert alone == ids[row]
        assert torch.equal(line[0], logits[row])


def test_the_tile_of_a_real_launch() -> None:
    case = any_case(3, vocab=300, vocab_size=257, width=96)
    for wide in (False, True):
        ids, logits = case.run(gemm_tile(300, 96, wide=wide))
        assert ids == case.sampled(logits)


def test_only_rows_that_are_kept_are_stored() -> None:
    case = any_case(9)
    ids, logits = case.run()
    keep = [-1, 2, -1, -1, 0, -1, -1, -1, 7]
    same, some = case.run(keep=keep)
    assert same == ids
    for row, line in enumerate(keep):
        if line >= 0:
            assert torch.equal(some[line], logits[row])
    lines = [line for line in range(len(some)) if line not in keep]
    assert (some[lines] == UNTOUCHED).all()


def test_equals_and_padding() -> None:
    """Ties go to the lowest id across tiles; padding is never drawn though its logits are the highest."""
    case = any_case(8, vocab=200, vocab_size=130)
    weight = case.weight.clone()
    weight[[3, 40, 41, 99]] = weight[129].clone()
    weight[130:] = weight[129] * 2
    x = torch.stack([weight[129] * scale for scale in (8, 1, 0.5, 0.25, 8, 0.1, 0, 2)])
    case = replace(case, weight=weight, x=x)
    ids, logits = case.run()
    assert ids == case.sampled(logits)
    assert ids[0] == ids[4] == 3
    assert max(ids) < 130


def test_rows_that_are_no_numbers() -> None:
    """NaN and -inf are never drawn, +inf counts as a finite number, and if nothing is left token 0 is drawn."""
    case = any_case(8)
    x, weight = case.x.clone(), case.weight.abs() + 0.5
    weight[::3] *= -1
    weight[0] = 0.0
    x[0], x[1] = math.nan, math.nan
    x[2], x[3] = math.inf, math.inf
    x[4], x[5] = -3e38, 3e38
    x[6:] = 0.0
    case = replace(case, x=x, weight=weight)
    ids, logits = case.run()
    with np.errstate(all="ignore"):
        assert ids == case.sampled(logits)
    assert ids[:2] == [0, 0]
    assert ids[2] == 1  # token 0 has inf * 0
    assert ids[6] != 0


def test_the_reference() -> None:
    case = any_case(12, whole=True)
    ids, logits = case.run()
    reference_logits = torch.full_like(logits, UNTOUCHED)
    reference_ids = torch.zeros(12, dtype=torch.int32)
    keep = torch.arange(12, dtype=torch.int32)
    head_argmax_reference(case.x, case.weight, case.vocab_size, case.params(), keep, reference_logits, reference_ids)
    assert reference_ids.tolist() == ids
    assert torch.equal(reference_logits, logits)


def test_no_rows() -> None:
    case = any_case(1)
    assert replace(case, x=case.x[:0], draws=[]).params().temperature.numel() == 0
    ids, _ = replace(case, x=case.x[:0], draws=[]).run()
    assert ids == []
