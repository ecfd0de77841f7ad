"""Start of the residual stream: each token's embedding, widened to fp32 exactly."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from acespec.kernels.add_norm import require_dense
from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.launch import on_triton

BLOCK = 1024
"""Columns a program, eight a thread: two fp32 stores of 16 bytes."""


@triton.jit(do_not_specialize_on_alignment=["tokens"])
def embed_kernel(tokens, weight, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """sm_90, H = 4096: 16 registers; 2 LDG.E.64, 2 STG.E.128, and 1 LDG.E for the token."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < WIDTH
    token = tl.load(tokens + row).to(tl.int64)
    # In fours, as they are stored: eight a thread would have to pass through shared memory.
    source = weight + token * WIDTH + tl.max_contiguous(columns, 4)
    present = columns < tl.where(token >= 0, WIDTH, 0)
    x = tl.load(source, mask=present, other=0.0)
    tl.store(out + row * WIDTH + columns, x.to(tl.float32), mask=inside)


def embed(tokens: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """out[i] = float32(weight[tokens[i]]), or zeros where tokens[i] < 0.

    Args:
        tokens: int32[M], each below V.
        weight: bfloat16[V, H], contiguous.
        out: float32[M, H], contiguous.

    Raises:
        UsageError: a tensor is not laid out so.
    """
    if not on_triton(out):
        out.copy_(embed_reference(tokens, weight))
        return
    require_dense(tokens, weight, out)
    rows, width = out.shape
    if rows == 0:
        return
    block = min(BLOCK, triton.next_power_of_2(width))
    embed_kernel[(rows, triton.cdiv(width, block))](
        tokens,
        weight,
        out,
        WIDTH=width,
        BLOCK=block,
        num_warps=max(1, block // 256),
        num_stages=1,
        enable_fp_fusion=False,
    )


def embed_reference(tokens: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """float32[M, H]; shapes as for `embed`."""
    found = weight[tokens.clamp(min=0).long()].float()
    return torch.where(tokens[:, None] < 0, torch.zeros_like(found), found)


AHEAD: tuple[AheadCase, ...] = (
    AheadCase(
        name="embed",
        kernel=embed_kernel,
        signature={"tokens": "*i32", "weight": "*bf16", "out": "*fp32"},
        constants={"WIDTH": 4096, "BLOCK": BLOCK},
        aligned=("weight", "out"),
        options={"num_warps": BLOCK // 256, "num_stages": 1, "enable_fp_fusion": False},
        gate=Gate(registers=32, at_least={"LDG": 3, "STG": 2}, none=("BAR", "LDS", "STS")),
        floor="6 H bytes a row; H = 4096: 24 KiB.",
        design="Four programs a row; loads of 8 bytes become stores of 16 in the same thread.",
    ),
)
