"""Copy keys and values of single positions inside the pool, over all layers: an accepted branch joins its page.

Branches of a draft tree are written to spare slots behind the pages. Those that were accepted move to the slots that
the page table gives their positions; nothing else moves, and a rollback moves nothing at all.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from acespec.kernels.add_norm import require_dense
from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.launch import on_triton

BLOCK = 1024
"""Elements a program, eight a thread: one load and one store of 16 bytes."""


@triton.jit(do_not_specialize=["slots"], do_not_specialize_on_alignment=["source", "target", "slots"])
def move_kv_kernel(pool, source, target, slots, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """sm_90, 8 heads of 128: 16 registers; 1 LDG.E.128, 1 STG.E.128, and 2 LDG.E for the pair."""
    move = tl.program_id(0)
    plane = tl.program_id(1).to(tl.int64) * slots
    columns = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    old, new = tl.load(source + move), tl.load(target + move)
    if (old >= 0) & (new >= 0):
        inside = columns < WIDTH
        values = tl.load(pool + (plane + old) * WIDTH + columns, mask=inside)
        tl.store(pool + (plane + new) * WIDTH + columns, values, mask=inside)


def move_kv(pool: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> None:
    """pool[:, :, target[i]] = pool[:, :, source[i]] for all i at once; a pair with a negative slot is skipped.

    Args:
        pool: bfloat16[layers, 2, slots, kv_heads, head_dim], contiguous.
        source, target: int32[n]. No slot is both read and written, except by pairs that copy it onto itself.

    Raises:
        UsageError: a tensor is not laid out so.
    """
    if not on_triton(pool):
        move_kv_reference(pool, source, target)
        return
    require_dense(pool, source, target)
    if len(source) == 0:
        return
    layers, two, slots, kv_heads, head_dim = pool.shape
    width = kv_heads * head_dim
    block = min(BLOCK, triton.next_power_of_2(width))
    move_kv_kernel[(len(source), layers * two, triton.cdiv(width, block))](
        pool,
        source,
        target,
        slots,
        WIDTH=width,
        BLOCK=block,
        num_warps=max(1, block // 256),
        num_stages=1,
        enable_fp_fusion=False,
    )


def move_kv_reference(pool: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> None:
    """The same, in place."""
    for old, new in zip(source.tolist(), target.tolist(), strict=True):
        if old >= 0 and new >= 0:
            pool[:, :, new] = pool[:, :, old].clone()


AHEAD: tuple[AheadCase, ...] = (
    AheadCase(
        name="move_kv",
        kernel=move_kv_kernel,
        signature={"pool": "*bf16", "source": "*i32", "target": "*i32", "slots": "i32"},
        constants={"WIDTH": 1024, "BLOCK": BLOCK},
        aligned=("pool",),
        options={"num_warps": BLOCK // 256, "num_stages": 1, "enable_fp_fusion": False},
        gate=Gate(registers=32, at_least={"LDG": 3, "STG": 1}, none=("BAR", "LDS", "STS")),
        floor="8 layers kv_heads head_dim bytes a moved position; 32 layers, 8 heads of 128: 256 KiB.",
        design="A program copies one position of one layer's keys or values, 16 bytes a thread.",
    ),
)
