"""Merge the partial attention states of each row, ascending, and divide: the second half of `attention`.

The formula is the one by which `attention` merges splits inside an item, so it does not matter where an item ended. It
begins with an empty state of +0, which makes a sum of -0 one of +0: masked values weigh a zero of either sign, and
their company must not decide the sign of what is left.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.attention import LOWEST, AttentionWork, merge
from acespec.kernels.launch import on_triton

OPTIONS = {"num_warps": 1, "num_stages": 1, "enable_fp_fusion": False}
HEADS_AT_ONCE = 1
"""Heads of a program. With more, its loads are no longer all issued ahead."""
PARTS_AT_ONCE = 8
"""Partials read before the first of them is merged: merging is serial, waiting for memory need not be."""


@triton.jit(do_not_specialize_on_alignment=["row_base", "row_parts"])
def _combine(
    parts,
    stats,
    row_base,
    row_parts,
    out,
    HEADS: tl.constexpr,
    HEAD: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    HEADS_AT_ONCE: tl.constexpr,
    PARTS_AT_ONCE: tl.constexpr,
):
    row = tl.program_id(0)
    head = tl.program_id(1) * HEADS_AT_ONCE + tl.arange(0, HEADS_AT_ONCE)
    dims = tl.arange(0, HEAD_PAD)[None, :]
    inside = (head < HEADS)[:, None] & (dims < HEAD)
    count = tl.load(row_parts + row)
    counts = tl.where(head < HEADS, count, 0)
    base = tl.load(row_base + row).to(tl.int64) * HEADS + head
    top = tl.full((HEADS_AT_ONCE,), LOWEST, tl.float32)
    total = tl.zeros((HEADS_AT_ONCE,), tl.float32)
    acc = tl.zeros((HEADS_AT_ONCE, HEAD_PAD), tl.float32)
    for first in range(0, count, PARTS_AT_ONCE):
        for i in tl.static_range(PARTS_AT_ONCE):
            # Behind the last partial an empty state is merged, which changes nothing.
            known = first + i < counts
            at = base + (first + i) * HEADS
            top_i = tl.load(stats + at * 2, mask=known, other=LOWEST)
            total_i = tl.load(stats + at * 2 + 1, mask=known, other=0.0)
            acc_i = tl.load(parts + at[:, None] * HEAD + dims, mask=known[:, None] & inside, other=0.0)
            top, total, acc = merge(top, total, acc, top_i, total_i, acc_i)
    mean = acc / tl.where(total > 0.0, total, 1.0)[:, None]
    to = row.to(tl.int64) * HEADS + head
    tl.store(out + to[:, None] * HEAD + dims, mean.to(out.dtype.element_ty), mask=inside)


def combine(
    parts: torch.Tensor,
    stats: torch.Tensor,
    work: AttentionWork,
    out: torch.Tensor,
    *,
    heads_at_once: int = HEADS_AT_ONCE,
    parts_at_once: int = PARTS_AT_ONCE,
) -> None:
    """Write the attention output of each row; zeros for a row without partials. All tensors are contiguous.

    Args:
        parts: float32[n, heads, head_dim], as `attend` left them.
        stats: float32[n, heads, 2].
        out: bf16 (or float32)[rows, heads * head_dim]; `work` has at least as many rows.
        heads_at_once, parts_at_once: what a program has in hand, the former a power of two; they decide no bits.
    """
    if not on_triton(parts):
        combine_reference(parts, stats, work, out)
        return
    heads, head = parts.shape[1:]
    _combine[(out.shape[0], triton.cdiv(heads, heads_at_once))](
        parts,
        stats,
        work.row_base,
        work.row_parts,
        out,
        HEADS=heads,
        HEAD=head,
        HEAD_PAD=triton.next_power_of_2(head),
        HEADS_AT_ONCE=heads_at_once,
        PARTS_AT_ONCE=parts_at_once,
        **OPTIONS,
    )


def combine_reference(parts: torch.Tensor, stats: torch.Tensor, work: AttentionWork, out: torch.Tensor) -> None:
    """What `combine` does, all partials of a row at once."""
    for row, into in enumerate(out):
        first, count = int(work.row_base[row]), int(work.row_parts[row])
        if count == 0:
            into.zero_()
            continue
        top, total = stats[first : first + count].unbind(-1)
        share = torch.exp2(top - top.amax(0))
        values = (parts[first : first + count] * share[..., None]).sum(0)
        into.copy_((values / (share * total).sum(0)[:, None]).flatten())


AHEAD: tuple[AheadCase, ...] = (
    AheadCase(
        "attention combine, Llama 8B",
        _combine,
        {"parts": "*fp32", "stats": "*fp32", "row_base": "*i32", "row_parts": "*i32", "out": "*bf16"},
        {
            "HEADS": 32,
            "HEAD": 128,
            "HEAD_PAD": 128,
            "HEADS_AT_ONCE": HEADS_AT_ONCE,
            "PARTS_AT_ONCE": PARTS_AT_ONCE,
        },
        ("parts", "stats", "out"),
        OPTIONS,
        Gate(72),
        floor="reads each partial once: 4 * partials * heads * (head_dim + 2) bytes, from the second-level cache",
        design="A warp for each row and head; the loads of eight partials are in flight before the first is merged.",
    ),
)
