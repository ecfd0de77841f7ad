"""Residual add and RMSNorm (Zhang, Sennrich, arXiv 1910.07467): what stands between two matrix products.

The product before left S partial sums of every element (one for each fixed range of its inner dimension). Here they
are added, one after another, to the residual stream, and the new row is normalised for the next product: one read of
each partial, no kernel of its own for the reduction. A row is one program, and its block depends on the width alone,
so the order of the sum of squares does too.

Quotient and root are the rounded ones of IEEE 754. Only that sum's order differs from the reference, by a few units
in the last place of fp32; a bf16 result differs by at most one unit, and rarely.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.launch import on_triton
from acespec.kernels.tiles import gemm_tile
from acespec.proto.errors import UsageError

PER_THREAD = 16
"""Elements of a row that a thread holds: four loads of 16 bytes from each tensor."""


@triton.jit
def sum_partials(partials, plane, offsets, mask, SPLITS: tl.constexpr):
    """partials[0] + partials[1] + .. at `offsets`, ascending; `plane` elements (int64) lie between two."""
    total = tl.load(partials + offsets, mask=mask, other=0.0)
    for split in tl.static_range(1, SPLITS):
        total += tl.load(partials + split * plane + offsets, mask=mask, other=0.0)
    return total


@triton.jit
def _row(residual, partials, plane, offsets, mask, SPLITS: tl.constexpr):
    x = tl.load(residual + offsets, mask=mask, other=0.0)
    if SPLITS > 0:
        x += sum_partials(partials, plane, offsets, mask, SPLITS)
    return x


@triton.jit
def _normed(x, gain, eps, WIDTH: tl.constexpr):
    mean = tl.sum(x * x, 0) * (1.0 / WIDTH)
    scale = tl.math.div_rn(1.0, tl.math.sqrt_rn(mean + eps))
    return x * scale * gain


@triton.jit(do_not_specialize=["plane_rows"], do_not_specialize_on_alignment=["plane_rows"])
def add_norm_kernel(
    residual, partials, weight, out, eps, plane_rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr
):
    """sm_90, H = 4096, S = 4: 56 registers; 4 (S + 2) LDG.E.128, 4 STG.E.128 and, for bf16, 4 STG.E.64; 1 barrier."""
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    offsets = tl.program_id(0).to(tl.int64) * WIDTH + columns
    gain = tl.load(weight + columns, mask=inside, other=0.0)
    x = _row(residual, partials, plane_rows.to(tl.int64) * WIDTH, offsets, inside, SPLITS)
    if SPLITS > 0:
        tl.store(residual + offsets, x, mask=inside)
    # Stored in fours, as the fp32 row is: eight a thread would have to pass through shared memory.
    tl.store(out + tl.max_contiguous(offsets, 4), _normed(x, gain, eps, WIDTH).to(tl.bfloat16), mask=inside)


@triton.jit(do_not_specialize=["plane_rows"], do_not_specialize_on_alignment=["plane_rows", "rows"])
def norm_rows_kernel(
    residual,
    partials,
    rows,
    weight,
    out,
    eps,
    plane_rows,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """sm_90, H = 4096, S = 4: 56 registers; 4 (S + 2) LDG.E.128, 1 LDG.E (its number), 2 STG.E.128; 1 barrier."""
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    gain = tl.load(weight + columns, mask=inside, other=0.0)
    target = tl.program_id(0).to(tl.int64)
    source = tl.load(rows + target).to(tl.int64)
    present = columns < tl.where(source >= 0, WIDTH, 0)
    x = _row(residual, partials, plane_rows.to(tl.int64) * WIDTH, source * WIDTH + columns, present, SPLITS)
    y = tl.where(present, _normed(x, gain, eps, WIDTH), 0.0)
    tl.store(out + target * WIDTH + columns, y.to(tl.bfloat16), mask=inside)


def add_norm(
    residual: torch.Tensor, partials: torch.Tensor | None, weight: torch.Tensor, eps: float, out: torch.Tensor
) -> None:
    """residual += partials[0] + partials[1] + ..; out = bf16(rms_norm(residual) * weight).

    Args:
        residual: float32[M, H], contiguous; changed unless there are no partials.
        partials: float32[S, M, H] with dense rows, or None before the first layer.
        weight: float32[H].
        out: bfloat16[M, H], contiguous.

    Raises:
        UsageError: a tensor is not laid out so.
    """
    if not on_triton(residual):
        total, normed = add_norm_reference(residual, partials, weight, eps)
        residual.copy_(total)
        out.copy_(normed)
        return
    require_dense(residual, weight, out)
    rows, width = residual.shape
    if rows == 0:
        return
    block = triton.next_power_of_2(width)
    add_norm_kernel[(rows,)](
        residual,
        partials,
        weight,
        out,
        eps,
        rows_apart(partials),
        WIDTH=width,
        BLOCK=block,
        SPLITS=0 if partials is None else len(partials),
        num_warps=_warps(block),
        num_stages=1,
        enable_fp_fusion=False,
    )


def norm_rows(
    residual: torch.Tensor,
    partials: torch.Tensor | None,
    rows: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor,
) -> None:
    """out[i] = bf16(rms_norm(residual[rows[i]] + partials[:, rows[i]]) * weight); zeros where rows[i] < 0.

    Args:
        residual: float32[M, H], contiguous; not changed.
        partials: float32[S, M, H] with dense rows, or None.
        rows: int32[R], each below M.
        weight: float32[H].
        out: bfloat16[R, H], contiguous.

    Raises:
        UsageError: a tensor is not laid out so.
    """
    if not on_triton(residual):
        out.copy_(norm_rows_reference(residual, partials, rows, weight, eps))
        return
    require_dense(residual, rows, weight, out)
    if len(rows) == 0:
        return
    width = residual.shape[1]
    block = triton.next_power_of_2(width)
    norm_rows_kernel[(len(rows),)](
        residual,
        partials,
        rows,
        weight,
        out,
        eps,
        rows_apart(partials),
        WIDTH=width,
        BLOCK=block,
        SPLITS=0 if partials is None else len(partials),
        num_warps=_warps(block),
        num_stages=1,
        enable_fp_fusion=False,
    )


def add_norm_reference(
    residual: torch.Tensor, partials: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(new residual float32[M, H], normalised bfloat16[M, H]); shapes as for `add_norm`."""
    total = residual if partials is None else residual + sum_partials_reference(partials)
    scale = 1.0 / torch.sqrt(total.square().mean(-1, keepdim=True) + eps)
    return total, (total * scale * weight).to(torch.bfloat16)


def norm_rows_reference(
    residual: torch.Tensor, partials: torch.Tensor | None, rows: torch.Tensor, weight: torch.Tensor, eps: float
) -> torch.Tensor:
    """bfloat16[R, H]; shapes as for `norm_rows`."""
    chosen = rows.clamp(min=0).long()
    normed = add_norm_reference(residual, partials, weight, eps)[1][chosen]
    return torch.where(rows[:, None] < 0, torch.zeros_like(normed), normed)


def sum_partials_reference(partials: torch.Tensor) -> torch.Tensor:
    """float32[M, N]: partials[0] + partials[1] + .., one after another, of float32[S, M, N]."""
    total = partials[0].clone()
    for partial in partials[1:]:
        total += partial
    return total


def rows_apart(partials: torch.Tensor | None) -> int:
    """Rows that lie between two partial sums: M, or more if [S, M, N] is a part of a larger buffer.

    Raises:
        UsageError: its rows are not dense.
    """
    if partials is None:
        return 0
    require_dense(partials[0])
    splits, rows, width = partials.shape
    if splits == 1:
        return rows
    if partials.stride(0) % width:
        raise UsageError(f"partial sums {partials.stride(0)} elements apart; give a multiple of their width {width}")
    return partials.stride(0) // width


def require_dense(*tensors: torch.Tensor) -> None:
    """Raise `UsageError` unless all are contiguous, as kernels address them."""
    for tensor in tensors:
        if not tensor.is_contiguous():
            shape, strides = tuple(tensor.shape), tensor.stride()
            raise UsageError(f"a tensor of shape {shape} has strides {strides}; kernels need it contiguous")


def _warps(block: int) -> int:
    return max(1, min(16, block // (32 * PER_THREAD)))


_WIDTH, _FFN = 4096, 14336
_FLOOR = (
    "H (4 S + 10) bytes a row for S partials, 6 H before the first layer, which has none; the weight's 4 H once. "
    "H = 4096, S = 2: 72 KiB a row."
)
_DESIGN = (
    "A program is a row and issues all its loads at once, 16 bytes each, neighbours in a warp side by side in memory. "
    "One barrier, for the sum of squares; nothing else passes through shared memory."
)


def _add_norm_case(name: str, splits: int) -> AheadCase:
    partials = {"partials": "*fp32"} if splits else {}
    return AheadCase(
        name=f"add_norm {name}",
        kernel=add_norm_kernel,
        signature={
            "residual": "*fp32",
            **partials,
            "weight": "*fp32",
            "out": "*bf16",
            "eps": "fp32",
            "plane_rows": "i32",
        },
        constants={"WIDTH": _WIDTH, "BLOCK": _WIDTH, "SPLITS": splits} | ({} if splits else {"partials": None}),
        aligned=("residual", *partials, "weight", "out"),
        options={"num_warps": _warps(_WIDTH), "num_stages": 1, "enable_fp_fusion": False},
        gate=Gate(registers=32 + 16 * (splits + 1), at_least={"LDG": 4 * (splits + 2), "STG": 8 if splits else 4}),
        floor=_FLOOR,
        design=_DESIGN,
    )


def _norm_rows_case(splits: int) -> AheadCase:
    return AheadCase(
        name="norm_rows",
        kernel=norm_rows_kernel,
        signature={
            "residual": "*fp32",
            "partials": "*fp32",
            "rows": "*i32",
            "weight": "*fp32",
            "out": "*bf16",
            "eps": "fp32",
            "plane_rows": "i32",
        },
        constants={"WIDTH": _WIDTH, "BLOCK": _WIDTH, "SPLITS": splits},
        aligned=("residual", "partials", "weight", "out"),
        options={"num_warps": _warps(_WIDTH), "num_stages": 1, "enable_fp_fusion": False},
        gate=Gate(registers=32 + 16 * (splits + 1), at_least={"LDG": 4 * (splits + 2), "STG": 2}),
        floor="H (4 S + 6) bytes a chosen row; the weight's 4 H once.",
        design="As add_norm, but rows are looked up and the residual stream stays as it is; bf16 stores of 16 bytes.",
    )


AHEAD: tuple[AheadCase, ...] = (
    _add_norm_case("first layer", 0),
    _add_norm_case("after attention", gemm_tile(_WIDTH, _WIDTH).splits),
    _add_norm_case("after MLP", gemm_tile(_WIDTH, _FFN).splits),
    _norm_rows_case(gemm_tile(_WIDTH, _FFN).splits),
)
