"""The accepted path: each block's samples compared with its drafts, row after row, for as long as they match.

A row's sample is the target's token behind it. Where the block has a row that follows with that token the walk goes
on from there; the first sample that no row follows is the bonus token and ends it. Only this result has to leave the
device.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.launch import on_triton

FIELDS = 4
"""Numbers of a block: first row in `parents` and `tokens`, rows, sample_from, first sampled row."""
SPAN = 128
"""Rows that are searched for a child at a time."""


@triton.jit(do_not_specialize=["out_stride"], do_not_specialize_on_alignment=["out_stride"])
def accept_kernel(
    blocks,
    parents,
    tokens,
    ids,
    out_tokens,
    out_rows,
    counts,
    out_stride,
    SPAN: tl.constexpr,
):
    block = tl.program_id(0)
    first = tl.load(blocks + 4 * block)
    rows = tl.load(blocks + 4 * block + 1)
    sample_from = tl.load(blocks + 4 * block + 2)
    samples = ids + tl.load(blocks + 4 * block + 3) - sample_from
    out = block.to(tl.int64) * out_stride
    row = sample_from
    count = 0
    while row < rows:
        token = tl.load(samples + row)
        tl.store(out_tokens + out + count, token)
        tl.store(out_rows + out + count, row)
        count += 1
        row = _child(parents + first, tokens + first, row, token, rows, SPAN)
    tl.store(counts + block, count)


@triton.jit
def _child(parents, tokens, row, token, rows, SPAN: tl.constexpr):
    """The lowest row that follows `row` with `token`; `rows` if there is none."""
    child = rows
    start = row + 1
    while start < child:
        at = start + tl.arange(0, SPAN)
        parent = tl.load(parents + at, mask=at < rows, other=-2)
        follows = (parent == row) & (tl.load(tokens + at, mask=at < rows, other=-1) == token)
        child = tl.min(tl.where(follows, at, rows), 0)
        start += SPAN
    return child


def accept(
    blocks: torch.Tensor,
    parents: torch.Tensor,
    tokens: torch.Tensor,
    ids: torch.Tensor,
    out_tokens: torch.Tensor,
    out_rows: torch.Tensor,
    counts: torch.Tensor,
) -> None:
    """Walk every block; its result is the first counts[b] items of its output rows, the others keep what they held.

    Args:
        blocks: int32[B, 4], contiguous: see `FIELDS`. Rows from sample_from on are sampled, in order; a block with
            sample_from = rows (0 = 0 for a padded one) samples nothing.
        parents: int32[N]: of each row in the blocks' own order, the row within its block that it follows, or -1.
        tokens: int32[N]: its input token.
        ids: int32[R]: the samples.
        out_tokens, out_rows: int32[B, W], rows contiguous and with the same stride; W is the longest path at least.
        counts: int32[B].
    """
    if not on_triton(ids):
        accept_reference(blocks, parents, tokens, ids, out_tokens, out_rows, counts)
        return
    if len(blocks) == 0:
        return
    accept_kernel[(len(blocks),)](
        blocks,
        parents,
        tokens,
        ids,
        out_tokens,
        out_rows,
        counts,
        out_tokens.stride(0),
        SPAN=SPAN,
        num_warps=1,
        num_stages=1,
        enable_fp_fusion=False,
    )


def accept_reference(
    blocks: torch.Tensor,
    parents: torch.Tensor,
    tokens: torch.Tensor,
    ids: torch.Tensor,
    out_tokens: torch.Tensor,
    out_rows: torch.Tensor,
    counts: torch.Tensor,
) -> None:
    """The same by dictionaries, on the host."""
    follows, drafts, samples = parents.tolist(), tokens.tolist(), ids.tolist()
    for block, (first, rows, sample_from, first_sampled) in enumerate(blocks.tolist()):
        children: dict[tuple[int, int], int] = {}
        for row in range(rows):
            children.setdefault((follows[first + row], drafts[first + row]), row)
        count, row = 0, sample_from
        while row < rows:
            token = samples[first_sampled + row - sample_from]
            out_tokens[block, count], out_rows[block, count] = token, row
            count += 1
            row = children.get((row, token), rows)
        counts[block] = count


AHEAD: tuple[AheadCase, ...] = (
    AheadCase(
        name="accept",
        kernel=accept_kernel,
        signature={
            "blocks": "*i32",
            "parents": "*i32",
            "tokens": "*i32",
            "ids": "*i32",
            "out_tokens": "*i32",
            "out_rows": "*i32",
            "counts": "*i32",
            "out_stride": "i32",
        },
        constants={"SPAN": SPAN},
        aligned=("blocks", "parents", "tokens", "ids", "out_tokens", "out_rows", "counts"),
        options={"num_warps": 1, "num_stages": 1, "enable_fp_fusion": False},
        gate=Gate(registers=64),
        floor="a chain of loads: one for each accepted token, about 1 us for 8; a few KB of memory",
        design="One warp a block searches 128 rows at once for the child; blocks run side by side.",
    ),
)
