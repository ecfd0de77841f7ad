"""The gated MLP's middle: silu(gate) * up (Shazeer, arXiv 2002.05202), from partial sums to bf16.

silu(x) = x / (1 + exp(-x)). A large x gives x and a large -x gives -0: exp overflows to infinity, whose quotient is
zero. `tl.exp` is the hardware's 2^x of a rounded product, good to some units in the last place of fp32 (about |x| / 2
of them, as the product's rounding grows with x): the same bits on every run, but not those of another library.
Everything else is rounded by IEEE 754.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from acespec.kernels.add_norm import require_dense, rows_apart, sum_partials, sum_partials_reference
from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.launch import on_triton
from acespec.kernels.tiles import gemm_tile

BLOCK = 1024
"""Columns a program, eight a thread: one bf16 store of 16 bytes."""


@triton.jit(do_not_specialize=["plane_rows"], do_not_specialize_on_alignment=["plane_rows"])
def silu_mul_kernel(partials, out, plane_rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr):
    """sm_90, F = 14336, S = 1: 38 registers; 4 S LDG.E.128, 1 STG.E.128; 8 MUFU.EX2 and 8 quotients of 8 columns."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < WIDTH
    plane = plane_rows.to(tl.int64) * (2 * WIDTH)
    gates = partials + row * (2 * WIDTH)
    gate = sum_partials(gates, plane, columns, inside, SPLITS)
    up = sum_partials(gates + WIDTH, plane, columns, inside, SPLITS)
    y = tl.math.div_rn(gate, 1.0 + tl.exp(-gate)) * up
    tl.store(out + row * WIDTH + columns, y.to(tl.bfloat16), mask=inside)


def silu_mul(partials: torch.Tensor, out: torch.Tensor) -> None:
    """out = bf16(silu(gate) * up), where [gate | up] = partials[0] + partials[1] + ...

    Args:
        partials: float32[S, M, 2 F] with dense rows.
        out: bfloat16[M, F], contiguous.

    Raises:
        UsageError: a tensor is not laid out so.
    """
    if not on_triton(partials):
        out.copy_(silu_mul_reference(partials))
        return
    require_dense(out)
    rows, width = out.shape
    if rows == 0:
        return
    block = min(BLOCK, triton.next_power_of_2(width))
    silu_mul_kernel[(rows, triton.cdiv(width, block))](
        partials,
        out,
        rows_apart(partials),
        WIDTH=width,
        BLOCK=block,
        SPLITS=len(partials),
        num_warps=max(1, block // 256),
        num_stages=1,
        enable_fp_fusion=False,
    )


def silu_mul_reference(partials: torch.Tensor) -> torch.Tensor:
    """bfloat16[M, F] of float32[S, M, 2 F]."""
    gate, up = sum_partials_reference(partials).chunk(2, -1)
    return (gate / (1.0 + torch.exp(-gate)) * up).to(torch.bfloat16)


_FFN = 14336

AHEAD: tuple[AheadCase, ...] = (
    AheadCase(
        name="silu_mul",
        kernel=silu_mul_kernel,
        signature={"partials": "*fp32", "out": "*bf16", "plane_rows": "i32"},
        constants={"WIDTH": _FFN, "BLOCK": BLOCK, "SPLITS": gemm_tile(2 * _FFN, 4096).splits},
        aligned=("partials", "out"),
        options={"num_warps": BLOCK // 256, "num_stages": 1, "enable_fp_fusion": False},
        gate=Gate(
            registers=64,
            at_least={"LDG": 4 * gemm_tile(2 * _FFN, 4096).splits, "STG": 1, "MUFU": 16},
            none=("BAR", "LDS", "STS"),
        ),
        floor="F (8 S + 2) bytes a row for S partials; F = 14336, S = 1: 140 KiB a row.",
        design=(
            "14 programs a row, eight columns a thread: loads and the one store move 16 bytes, all loads are in flight "
            "together, and no thread waits for another."
        ),
    ),
)
