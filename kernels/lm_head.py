"""The output head fused with the draw: logits, temperature, exact Gumbel noise and argmax, without writing logits.

For rows without filters. Each program holds a tile of scores, vocabulary by rows, and leaves one (score, token) for
each row; a second kernel takes each row's best. An argmax is exact in every order if ties go to the lowest id, so the
tiles decide no bit. (Fusing argmax and head: FlashSampling, arXiv 2603.15854; the noise here is the exact one.)

Rows named by `keep` have their logits stored as well: those with filters, for `draw_rows`, and those that the host
draws.

Cost on an H100, vocabulary 128256, hidden size 4096, estimated: 1.05 GB of weight, 314 us. A score takes about 120
operations where rows have noise (80 of them the noise, 15 the division), 35 us for 64 rows if nothing overlapped; two
programs share a multiprocessor, so that one computes while the other streams. Tiles of greedy rows skip the noise.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.gemm import accumulate_tile
from acespec.kernels.launch import on_triton
from acespec.kernels.noise import gumbel_of_fours, load_key
from acespec.kernels.row_params import RowParams
from acespec.kernels.tiles import GemmTile, cdiv, gemm_tile
from acespec.proto.sampling import sample

NOBODY = tl.constexpr((1 << 31) - 1)
CEILING = tl.constexpr(1e30)


@triton.jit
def heated(logits, temperature):
    """Logits over the temperature (0 counts as 1), NaN as -inf, at most 1e30: `acespec.proto.sampling._adjusted`."""
    y = tl.math.div_rn(logits, tl.where(temperature > 0, temperature, 1.0))
    return tl.where(y == y, tl.minimum(y, CEILING), -float("inf"))


@triton.jit(do_not_specialize=["R"], do_not_specialize_on_alignment=["R"])
def head_tile_kernel(
    x,
    weight,
    temperature,
    seeds,
    draw_at,
    keep,
    scores,
    best,
    logits,
    R,
    V,
    K,
    vocab_size,
    x_stride,
    weight_stride,
    scores_stride,
    logits_stride,
    BLOCK_N: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    tile = tl.program_id(1)
    tokens = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    total = accumulate_tile(
        weight, x, tokens, rows, V, R, K, weight_stride, x_stride, 0, K, BLOCK_N, BLOCK_ROWS, BLOCK_K
    )
    here = rows < R
    kept = tl.load(keep + rows, mask=here, other=-1)
    at = kept[None, :].to(tl.int64) * logits_stride + tokens[:, None]
    tl.store(logits + at, total, mask=(kept[None, :] >= 0) & (tokens[:, None] < V))
    heat = tl.load(temperature + rows, mask=here, other=0.0)
    score = heated(total, heat[None, :])
    if tl.max(heat, 0) > 0:
        low, high = load_key(seeds, tl.where(here, rows, 0))
        position = tl.load(draw_at + rows, mask=here, other=0).to(tl.uint32, bitcast=True)
        four = (tile * (BLOCK_N // 4) + tl.arange(0, BLOCK_N // 4)).to(tl.uint32)
        noise = gumbel_of_fours(low[:, None], high[:, None], four[None, :], position[:, None])
        score = tl.where(heat[None, :] > 0, score + tl.trans(noise), score)
    score = tl.where(tokens[:, None] < vocab_size, score, -float("inf"))
    peak = tl.max(score, 0)
    token = tl.min(tl.where(score == peak[None, :], tokens[:, None], NOBODY), 0)
    tl.store(scores + rows.to(tl.int64) * scores_stride + tile, peak, mask=here)
    tl.store(best + rows.to(tl.int64) * scores_stride + tile, token, mask=here)


@triton.jit
def head_best_kernel(scores, best, ids, stride, tiles, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    tile = tl.arange(0, BLOCK)
    at = row.to(tl.int64) * stride + tile
    score = tl.load(scores + at, mask=tile < tiles, other=-float("inf"))
    token = tl.load(best + at, mask=tile < tiles, other=NOBODY)
    tl.store(ids + row, tl.min(tl.where(score == tl.max(score, 0), token, NOBODY), 0))


def head_argmax(
    x: torch.Tensor,
    weight: torch.Tensor,
    vocab_size: int,
    params: RowParams,
    keep: torch.Tensor,
    scores: torch.Tensor,
    best: torch.Tensor,
    logits: torch.Tensor,
    ids: torch.Tensor,
    tile: GemmTile,
) -> None:
    """ids[r] = the token that row r draws with its temperature, seed and position; filters are ignored.

    Args:
        x: bf16[R, H], rows contiguous.
        weight: bf16[V, H], rows contiguous.
        vocab_size: tokens from here on are padding, which is never drawn.
        keep: int32[R]: row of `logits` that takes row r's logits, all V of them, or -1.
        scores, best: float32 and int32[R, T], scratch with equal strides; T = V / tile.block_n, rounded up, or more.
        logits: float32[L, >= V], rows contiguous.
        ids: int32[R].
        tile: from `gemm_tile`. Its splits are ignored: a score must be whole before noise is added.
    """
    if not on_triton(x):
        head_argmax_reference(x, weight, vocab_size, params, keep, logits, ids)
        return
    (rows, inputs), vocab = x.shape, len(weight)
    if rows == 0:
        return
    tiles = cdiv(vocab, tile.block_n)
    head_tile_kernel[(cdiv(rows, tile.block_rows), tiles)](
        x,
        weight,
        params.temperature,
        params.seeds,
        params.draw_at,
        keep,
        scores,
        best,
        logits,
        rows,
        vocab,
        inputs,
        vocab_size,
        x.stride(0),
        weight.stride(0),
        scores.stride(0),
        logits.stride(0),
        BLOCK_N=tile.block_n,
        BLOCK_ROWS=tile.block_rows,
        BLOCK_K=tile.block_k,
        num_warps=tile.warps,
        num_stages=tile.stages,
        enable_fp_fusion=False,
    )
    head_best_kernel[(rows,)](
        scores,
        best,
        ids,
        scores.stride(0),
        tiles,
        BLOCK=triton.next_power_of_2(tiles),
        num_warps=4,
        num_stages=1,
        enable_fp_fusion=False,
    )


def head_argmax_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    vocab_size: int,
    params: RowParams,
    keep: torch.Tensor,
    logits: torch.Tensor,
    ids: torch.Tensor,
) -> None:
    """The same by a plain product and `acespec.proto.sampling.sample`."""
    products = x.float() @ weight.float().T
    for row, (values, target) in enumerate(zip(products, keep.tolist(), strict=True)):
        if target >= 0:
            logits[target, : len(weight)] = values
        ids[row] = draw_unfiltered(values, params, row, vocab_size)


def draw_unfiltered(logits: torch.Tensor, params: RowParams, row: int, vocab_size: int) -> int:
    """What row `row` draws from float32[V] logits, its filters off."""
    rule, seed, position = params.of_row(row)
    unfiltered = type(rule)(temperature=rule.temperature)
    return sample(logits.cpu().numpy(), unfiltered, seed, position, vocab_size=vocab_size)


_HEAD_TYPES = {
    "x": "*bf16",
    "weight": "*bf16",
    "temperature": "*fp32",
    "seeds": "*i32",
    "draw_at": "*i32",
    "keep": "*i32",
    "scores": "*fp32",
    "best": "*i32",
    "logits": "*fp32",
    **dict.fromkeys(("R", "V", "K", "vocab_size"), "i32"),
    **dict.fromkeys(("x_stride", "weight_stride", "scores_stride", "logits_stride"), "i32"),
}


def _head_case(name: str, wide: bool, registers: int) -> AheadCase:
    tile = gemm_tile(128256, 4096, wide=wide)
    return AheadCase(
        name=name,
        kernel=head_tile_kernel,
        signature=_HEAD_TYPES,
        constants={"BLOCK_N": tile.block_n, "BLOCK_ROWS": tile.block_rows, "BLOCK_K": tile.block_k},
        aligned=tuple(argument for argument in _HEAD_TYPES if argument not in ("R", "scores_stride")),
        options={"num_warps": tile.warps, "num_stages": tile.stages, "enable_fp_fusion": False},
        gate=Gate(registers=registers, at_least={"HGMMA": 4, "LDGSTS": 4}),
        floor="the weight once, 2 V H = 1.05 GB: 314 us at 3.35 TB/s",
        design="Logits stay in registers; noise is drawn while other programs of the multiprocessor stream the weight.",
    )


AHEAD: tuple[AheadCase, ...] = (
    _head_case("lm head narrow", wide=False, registers=240),
    _head_case("lm head wide", wide=True, registers=208),
    AheadCase(
        name="lm head best of tiles",
        kernel=head_best_kernel,
        signature={"scores": "*fp32", "best": "*i32", "ids": "*i32", "stride": "i32", "tiles": "i32"},
        constants={"BLOCK": 1024},
        aligned=("scores", "best", "ids"),
        options={"num_warps": 4, "num_stages": 1, "enable_fp_fusion": False},
        gate=Gate(registers=40, none=("FFMA",)),
        floor="8 R V / 128 bytes, 0.5 MB at 64 rows: under a microsecond; one launch",
        design="One program a row, all its tiles at once.",
    ),
)
