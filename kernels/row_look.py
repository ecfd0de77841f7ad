"""Stored logits made ready for a draw, by one program for each block of each row.

First the logits over temperature, as integers in the same order, and each block's peak. Then, for rows with top-k or
top-p, how many tokens or how much mass of a block lie above edges at fixed distances below the row's best: that look
at every token is most of the work of a filter, and sums of integers may be made in parts. All division is here, so that
`draw_rows` holds no fused operation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.cut_search import EDGES, LOWEST_KEY, edges_below, ordered, sums_above
from acespec.kernels.lm_head import heated
from acespec.kernels.row_params import RowParams

BLOCK = 2048
"""Tokens looked at in one go."""
WARPS = 8


@dataclass(frozen=True, slots=True)
class DrawScratch:
    """What `draw_rows` needs beside its arguments, for L rows of V logits.

    Attributes:
        keys: int32[L, V]: logits over temperature, as ordered integers.
        spare: int32[L, V]: lists of candidates.
        peaks: int32[L, B]: the highest key of each block.
        sums: int64[L, B, 8]: tokens or mass of each block at and above the first edges.
    """

    keys: torch.Tensor
    spare: torch.Tensor
    peaks: torch.Tensor
    sums: torch.Tensor

    def first(self, rows: int) -> DrawScratch:
        """The scratch of the first rows."""
        return DrawScratch(self.keys[:rows], self.spare[:rows], self.peaks[:rows], self.sums[:rows])


def draw_scratch(rows: int, vocab: int, device: torch.device | str = "cpu") -> DrawScratch:
    """Scratch for `rows` rows of `vocab` logits: 8 bytes a logit and a little."""
    blocks = triton.cdiv(vocab, BLOCK)
    keys, spare = (torch.zeros((rows, vocab), dtype=torch.int32, device=device) for _ in range(2))
    peaks = torch.zeros((rows, blocks), dtype=torch.int32, device=device)
    return DrawScratch(keys, spare, peaks, torch.zeros((rows, blocks, EDGES.value), dtype=torch.int64, device=device))


@triton.jit
def heat_kernel(
    logits, which, temperature, keys, peaks, logits_stride, keys_stride, peaks_stride, vocab_size, BLOCK: tl.constexpr
):
    line = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    row = tl.load(which + line)
    if row >= 0:
        token = block * BLOCK + tl.arange(0, BLOCK)
        here = token < vocab_size
        x = tl.load(logits + line * logits_stride + token, mask=here, other=-float("inf"))
        key = ordered(heated(x, tl.load(temperature + row)))
        tl.store(keys + line * keys_stride + token, key, mask=here)
        tl.store(peaks + line * peaks_stride + block, tl.max(key, 0))


@triton.jit
def look_kernel(
    which,
    temperature,
    top_k,
    top_p,
    keys,
    peaks,
    sums,
    keys_stride,
    peaks_stride,
    vocab_size,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    line = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    row = tl.load(which + line)
    if row >= 0:
        by_count = limits_count(tl.load(top_k + row), vocab_size)
        by_mass = tl.load(top_p + row) < 1.0
        best = highest(peaks + line * peaks_stride, tl.cdiv(vocab_size, BLOCK), BLOCKS)
        if (tl.load(temperature + row) > 0) & (best > LOWEST_KEY) & (by_count | by_mass):
            start = block * BLOCK
            size = tl.minimum(vocab_size - start, BLOCK)
            here = keys + line * keys_stride + start
            out = sums + (line * peaks_stride + block) * EDGES + tl.arange(0, EDGES)
            edges = edges_below(best)
            if by_count:
                tl.store(out, sums_above(here, peaks, size, edges, best + 1, best, False, False, BLOCK))
            else:
                tl.store(out, sums_above(here, peaks, size, edges, best + 1, best, False, True, BLOCK))


@triton.jit
def limits_count(k, vocab_size):
    """Whether top-k removes anything."""
    return (k > 0) & (k < vocab_size)


@triton.jit
def highest(peaks, count, BLOCKS: tl.constexpr):
    """The highest of a row's peaks."""
    at = tl.arange(0, BLOCKS)
    return tl.max(tl.load(peaks + at, mask=at < count, other=LOWEST_KEY), 0)


def prepare(
    logits: torch.Tensor, which: torch.Tensor, params: RowParams, vocab_size: int, scratch: DrawScratch
) -> None:
    """Fill all of `scratch` but `spare`; arguments as of `draw_rows.draw_rows`."""
    lines, blocks = len(which), triton.cdiv(vocab_size, BLOCK)
    heat_kernel[(lines, blocks)](
        logits,
        which,
        params.temperature,
        scratch.keys,
        scratch.peaks,
        logits.stride(0),
        scratch.keys.stride(0),
        scratch.peaks.stride(0),
        vocab_size,
        BLOCK=BLOCK,
        num_warps=WARPS,
        num_stages=1,
        enable_fp_fusion=False,
    )
    look_kernel[(lines, blocks)](
        which,
        params.temperature,
        params.top_k,
        params.top_p,
        scratch.keys,
        scratch.peaks,
        scratch.sums,
        scratch.keys.stride(0),
        scratch.peaks.stride(0),
        vocab_size,
        BLOCKS=triton.next_power_of_2(blocks),
        BLOCK=BLOCK,
        num_warps=WARPS,
        num_stages=1,
        enable_fp_fusion=False,
    )


_SIZES = dict.fromkeys(("keys_stride", "peaks_stride", "vocab_size"), "i32")

AHEAD: tuple[AheadCase, ...] = (
    AheadCase(
        name="draw rows: heat",
        kernel=heat_kernel,
        signature={
            "logits": "*fp32",
            "which": "*i32",
            "temperature": "*fp32",
            "keys": "*i32",
            "peaks": "*i32",
            "logits_stride": "i32",
            **_SIZES,
        },
        constants={"BLOCK": BLOCK},
        aligned=("logits", "which", "temperature", "keys", "peaks", "logits_stride", "keys_stride", "vocab_size"),
        options={"num_warps": WARPS, "num_stages": 1, "enable_fp_fusion": False},
        gate=Gate(registers=40),
        floor="8 L V bytes: 64 rows of 128256 logits are 66 MB, 20 us from memory, less from the second-level cache",
        design="Every block of every row is a program of its own, loads and stores of 16 bytes a thread.",
    ),
    AheadCase(
        name="draw rows: look",
        kernel=look_kernel,
        signature={
            "which": "*i32",
            "temperature": "*fp32",
            "top_k": "*i32",
            "top_p": "*fp64",
            "keys": "*i32",
            "peaks": "*i32",
            "sums": "*i64",
            **_SIZES,
        },
        constants={"BLOCKS": 64, "BLOCK": BLOCK},
        aligned=("which", "temperature", "top_k", "top_p", "keys", "peaks", "sums", "keys_stride", "vocab_size"),
        options={"num_warps": WARPS, "num_stages": 1, "enable_fp_fusion": False},
        gate=Gate(registers=72, none=("FFMA",)),
        floor="4 L V bytes from the second-level cache; 30 operations a token for its mass: 9 us for 64 rows of 128256",
        design="About 110 instructions a token with the eight sums, 32 us for 64 rows; blocks run side by side.",
    ),
)
