"""Tokens drawn from stored logits: temperature, top-k, top-p, min-p, exact Gumbel noise, argmax; one program a row.

The result is that of `acespec.proto.sampling.sample`, bit for bit. No sort and no full row of noise: after `row_look`
come the cuts of top-k and top-p (`cut_search`), then the tokens that are kept and could win, ascending, in a list, then
the noise of these. Blocks whose peak says that they hold none are not read.

A token could win unless even the highest noise leaves it below what the lowest gives the best token. Rounding keeps
order, so this loses no winner and no tie.

Cost on an H100, 64 rows of 128256 logits, estimated: 20 us to heat (66 MB), 15 (top-k) to 32 us (top-p) to look at each
token, 10 to 20 us to search, gather and draw from a peaked row. A row as flat as its noise has a hundred thousand
candidates on one multiprocessor and takes some 200 us.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from acespec.kernels import row_look
from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.cut_search import (
    EDGES,
    LOWEST_KEY,
    cut_by_count,
    cut_by_mass,
    edges_below,
    ordered,
    sums_above,
    value_of,
)
from acespec.kernels.launch import on_triton
from acespec.kernels.lm_head import NOBODY
from acespec.kernels.noise import HIGHEST, LOWEST, gumbel_of_tokens, load_key
from acespec.kernels.row_look import DrawScratch as DrawScratch
from acespec.kernels.row_look import draw_scratch as draw_scratch
from acespec.kernels.row_look import highest, limits_count
from acespec.kernels.row_params import RowParams
from acespec.proto.sampling import sample

FEW = 512
"""Tokens whose noise is drawn in one go: one a thread."""
WARPS = 16
"""Up to 132 rows have a multiprocessor each, so a program brings warps enough to hide its waits."""


@triton.jit
def draw_kernel(
    which,
    temperature,
    seeds,
    draw_at,
    top_k,
    top_p,
    min_p_log,
    keys,
    peaks,
    sums,
    spare,
    ids,
    keys_stride,
    peaks_stride,
    vocab_size,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
    FEW: tl.constexpr,
):
    line = tl.program_id(0).to(tl.int64)
    row = tl.load(which + line)
    if row >= 0:
        keys += line * keys_stride
        spare += line * keys_stride
        peaks += line * peaks_stride
        best = highest(peaks, tl.cdiv(vocab_size, BLOCK), BLOCKS)
        # Greedy is the lowest id of the best logit; with one candidate its noise decides nothing.
        cut, ties = best, tl.full((), 1, tl.int64)
        least = best
        if (tl.load(temperature + row) > 0) & (best > LOWEST_KEY):
            first_sums = sums + line * peaks_stride * EDGES
            k, p = tl.load(top_k + row), tl.load(top_p + row)
            cut, ties = _cut(keys, peaks, first_sums, spare, vocab_size, best, k, p, BLOCKS, BLOCK)
            least = ordered(value_of(best) + tl.load(min_p_log + row))
        least = tl.maximum(tl.maximum(least, cut), LOWEST_KEY + 1)
        count = _candidates(keys, peaks, spare, vocab_size, best, cut, ties, least, BLOCK)
        tl.store(ids + row, _winner(keys, spare, count, seeds, tl.load(draw_at + row), row, FEW))


@triton.jit
def _cut(keys, peaks, first_sums, spare, size, best, k, p, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """(cut, how many equal to it stay) of top-k and then top-p; keys above the cut all stay."""
    cut = tl.full((), LOWEST_KEY, tl.int32)
    ties = tl.zeros((), tl.int64)
    by_count = limits_count(k, size)
    if by_count | (p < 1.0):
        edges = edges_below(best)
        sums = _added(first_sums, tl.cdiv(size, BLOCK), BLOCKS)
        if by_count:
            cut, ties = cut_by_count(keys, peaks, size, spare, best, sums, k, BLOCK)
            edges = tl.maximum(edges, cut + 1)
        if p < 1.0:
            if by_count:
                sums = sums_above(keys, peaks, size, edges, best + 1, best, True, True, BLOCK)
            cut, ties = cut_by_mass(keys, peaks, size, spare, best, edges, sums, p, cut, ties, BLOCK)
    return cut, ties


@triton.jit
def _added(sums, blocks, BLOCKS: tl.constexpr):
    """int64[EDGES]: the sums of all blocks of a row."""
    block = tl.arange(0, BLOCKS)[:, None]
    at = block * EDGES + tl.arange(0, EDGES)[None, :]
    return tl.sum(tl.load(sums + at, mask=block < blocks, other=0), 0)


@triton.jit
def _candidates(keys, peaks, tokens, size, best, cut, ties, least, BLOCK: tl.constexpr):
    """Write the tokens that are kept and could win to `tokens`, ascending; returns how many there are."""
    count = 0
    equals = 0
    to_beat = value_of(best) + LOWEST
    for start in range(0, size, BLOCK):
        peak = tl.load(peaks + start // BLOCK)
        if (peak >= least) & (value_of(peak) + HIGHEST >= to_beat):
            token = start + tl.arange(0, BLOCK)
            key = tl.load(keys + token, mask=token < size, other=LOWEST_KEY)
            equal = (key == cut).to(tl.int32)
            stays = (key > cut) | (equals + tl.cumsum(equal, 0) <= ties)
            stays = stays & (key >= least) & (value_of(key) + HIGHEST >= to_beat)
            rank = tl.cumsum(stays.to(tl.int32), 0)
            tl.store(tokens + count + rank - 1, token, mask=stays)
            count += tl.sum(stays.to(tl.int32), 0)
            equals += tl.sum(equal, 0)
    tl.debug_barrier()
    return count


@triton.jit
def _winner(keys, tokens, count, seeds, position, row, FEW: tl.constexpr):
    """The token with the highest sum of logit and noise, the lowest on a tie; 0 if there are none."""
    low, high = load_key(seeds, row)
    best = tl.full((), -float("inf"), tl.float32)
    winner = 0
    for start in range(0, count, FEW):
        at = start + tl.arange(0, FEW)
        token = tl.load(tokens + at, mask=at < count, other=0)
        noise = gumbel_of_tokens(low, high, token, position.to(tl.uint32, bitcast=True))
        score = tl.where(at < count, value_of(tl.load(keys + token)) + noise, -float("inf"))
        peak = tl.max(score, 0)
        if peak > best:
            best = peak
            winner = tl.min(tl.where(score == peak, token, NOBODY), 0)
    return winner


def draw_rows(
    logits: torch.Tensor,
    which: torch.Tensor,
    params: RowParams,
    vocab_size: int,
    scratch: DrawScratch,
    ids: torch.Tensor,
) -> None:
    """ids[which[l]] = the token that row which[l] draws from logits[l]; lines with which[l] < 0 are left out.

    Args:
        logits: float32[L, V >= vocab_size], rows contiguous; they stay as they are.
        which: int32[L].
        params: of all R sampled rows.
        vocab_size: tokens from here on are padding, which is never drawn.
        scratch: for L rows of vocab_size logits at least.
        ids: int32[R].
    """
    if not on_triton(logits):
        draw_rows_reference(logits, which, params, vocab_size, ids)
        return
    lines = len(which)
    if lines == 0:
        return
    row_look.prepare(logits, which, params, vocab_size, scratch)
    draw_kernel[(lines,)](
        which,
        params.temperature,
        params.seeds,
        params.draw_at,
        params.top_k,
        params.top_p,
        params.min_p_log,
        scratch.keys,
        scratch.peaks,
        scratch.sums,
        scratch.spare,
        ids,
        scratch.keys.stride(0),
        scratch.peaks.stride(0),
        vocab_size,
        BLOCKS=triton.next_power_of_2(triton.cdiv(vocab_size, row_look.BLOCK)),
        BLOCK=row_look.BLOCK,
        FEW=FEW,
        num_warps=WARPS,
        num_stages=1,
        enable_fp_fusion=False,
    )


def draw_rows_reference(
    logits: torch.Tensor, which: torch.Tensor, params: RowParams, vocab_size: int, ids: torch.Tensor
) -> None:
    """The same by `acespec.proto.sampling.sample`, row by row."""
    for line, row in enumerate(which.tolist()):
        if row >= 0:
            rule, seed, position = params.of_row(row)
            ids[row] = sample(logits[line].cpu().numpy(), rule, seed, position, vocab_size=vocab_size)


_POINTERS = {
    "which": "*i32",
    "temperature": "*fp32",
    "seeds": "*i32",
    "draw_at": "*i32",
    "top_k": "*i32",
    "top_p": "*fp64",
    "min_p_log": "*fp32",
    "keys": "*i32",
    "peaks": "*i32",
    "sums": "*i64",
    "spare": "*i32",
    "ids": "*i32",
}

AHEAD: tuple[AheadCase, ...] = (
    AheadCase(
        name="draw rows",
        kernel=draw_kernel,
        signature={
            **_POINTERS,
            **dict.fromkeys(("keys_stride", "peaks_stride", "vocab_size"), "i32"),
        },
        constants={"BLOCKS": 64, "BLOCK": row_look.BLOCK, "FEW": FEW},
        aligned=(*_POINTERS, "keys_stride", "vocab_size"),
        options={"num_warps": WARPS, "num_stages": 1, "enable_fp_fusion": False},
        gate=Gate(registers=96, none=("FFMA",)),
        floor="a row once, 4 V bytes or 0.5 MB, from the second-level cache; 4 us on one multiprocessor",
        design="One program a row; peaks spare it blocks without candidates, and only candidates get noise.",
    ),
)
