"""Matrix product of a step's rows with a bf16 weight: a row's bits do not depend on the rows beside it.

The product is computed the other way round, weight times rows: the weight's rows fill the matrix unit's first operand,
which takes 64 at least, the step's rows its second, which takes any multiple of 8. So a verify step of a few rows and a
prefill of thousands use the same family of instructions (HGMMA), the same blocks of k, in the same order. Inputs are
cut into a fixed number of ranges whose sums are stored apart, as fp32, for the next kernel to add in ascending order.

Measured on the machine code (Triton 3.9; 3.6 within 5 %): the loop takes 136 instructions for a block of 128 x 64
weights on 4 warps, which is far from what a multiprocessor can issue while 16 KB arrive, so memory sets the pace.
Eviction hints on the weight change nothing of an asynchronous copy, and advancing pointers instead of offsets costs 36
instructions more. A wide tile of 256 outputs would read less, but spills.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.launch import on_triton
from acespec.kernels.tiles import GemmTile, cdiv, gemm_tile, split_length
from acespec.proto.errors import UsageError


@triton.jit
def accumulate_tile(
    weight,  # bf16, [N, K]
    x,  # bf16, [M, K]
    outputs,  # int[BLOCK_N]: rows of the weight
    rows,  # int[BLOCK_ROWS]: rows of x
    N,
    M,
    K,
    weight_stride,
    x_stride,
    start,  # first k, a multiple of BLOCK_K
    stop,  # one past the last k
    BLOCK_N: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """weight[outputs, start:stop] @ x[rows, start:stop].T, f32[BLOCK_N, BLOCK_ROWS]; rows past N or M are zeros."""
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_N, BLOCK_ROWS), tl.float32)
    weight_row = weight + outputs[:, None].to(tl.int64) * weight_stride
    x_row = x + rows[None, :].to(tl.int64) * x_stride
    for first in tl.range(start, stop, BLOCK_K):
        at = first + k
        w = tl.load(weight_row + at[None, :], mask=(outputs[:, None] < N) & (at[None, :] < K), other=0.0)
        r = tl.load(x_row + at[:, None], mask=(rows[None, :] < M) & (at[:, None] < K), other=0.0)
        total = tl.dot(w, r, total)
    return total


@triton.jit
def store_plane(out, total, plane, outputs, rows, N, M, out_stride, out_plane):
    """out[plane, rows, outputs] = total.T where rows < M and outputs < N; planes are out_plane rows apart."""
    row = plane.to(tl.int64) * out_plane + rows
    at = out + row[None, :] * out_stride + outputs[:, None]
    tl.store(at, total, mask=(rows[None, :] < M) & (outputs[:, None] < N))


@triton.jit(
    do_not_specialize=["M", "out_plane"],
    do_not_specialize_on_alignment=["M", "out_plane"],
)
def gemm_kernel(
    x,
    weight,
    out,
    M,
    N,
    K,
    x_stride,
    weight_stride,
    out_stride,
    out_plane,  # rows between two planes of out
    split,  # inputs of a range
    BLOCK_N: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # Row tiles are innermost: those that share a block of the weight run together, and memory is read once for all.
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    outputs = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    plane = tl.program_id(2)
    start = plane * split
    stop = tl.minimum(start + split, K)
    total = accumulate_tile(
        weight, x, outputs, rows, N, M, K, weight_stride, x_stride, start, stop, BLOCK_N, BLOCK_ROWS, BLOCK_K
    )
    store_plane(out, total, plane, outputs, rows, N, M, out_stride, out_plane)


def gemm(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, tile: GemmTile) -> None:
    """out[s] = x[:, range s] @ weight[:, range s].T; the product is the sum of out over s, ascending.

    Args:
        x: bf16[M, K], rows contiguous, any row stride.
        weight: bf16[N, K], rows contiguous, any row stride.
        out: f32[tile.splits, M, N], rows contiguous; it may be a view of the first M rows of larger planes.
        tile: from `gemm_tile(N, K)`.

    Raises:
        UsageError: the shapes do not fit each other, or a tensor is laid out otherwise.
    """
    (m, k), n = x.shape, weight.shape[0]
    check_product(x, tuple(weight.shape), out, tile)
    if not on_triton(x):
        out.copy_(gemm_reference(x, weight, tile.splits, tile.block_k))
        return
    if m == 0:
        return
    gemm_kernel[grid(m, n, tile)](
        x,
        weight,
        out,
        m,
        n,
        k,
        x.stride(0),
        weight.stride(0),
        out.stride(1),
        out.stride(0) // out.stride(1),
        split_length(k, tile.splits, tile.block_k),
        BLOCK_N=tile.block_n,
        BLOCK_ROWS=tile.block_rows,
        BLOCK_K=tile.block_k,
        num_warps=tile.warps,
        num_stages=tile.stages,
        enable_fp_fusion=False,
    )


def grid(rows: int, outputs: int, tile: GemmTile) -> tuple[int, int, int]:
    """Programs of a product: (row tiles, weight tiles, splits)."""
    return cdiv(rows, tile.block_rows), cdiv(outputs, tile.block_n), tile.splits


def check_product(x: torch.Tensor, shape: tuple[int, ...], out: torch.Tensor, tile: GemmTile) -> None:
    """Raise UsageError unless x and out fit a weight of this shape, with rows contiguous."""
    n, k = shape
    wanted = (tile.splits, len(x), n)
    if x.shape[1] != k or tuple(out.shape) != wanted:
        raise UsageError(
            f"product with a weight {[n, k]}: rows are {list(x.shape)} and the output {list(out.shape)};"
            f" give [M, {k}] and {list(wanted)}"
        )
    if x.stride(1) != 1 or out.stride(2) != 1 or out.stride(0) % out.stride(1):
        raise UsageError(
            f"product: strides are {x.stride()} and {out.stride()};"
            " make rows contiguous and planes a whole number of rows apart"
        )


def gemm_reference(x: torch.Tensor, weight: torch.Tensor, splits: int, block_k: int) -> torch.Tensor:
    """f32[splits, M, N]: the same ranges of inputs, each summed in fp32 in whatever order torch takes."""
    length = split_length(x.shape[1], splits, block_k)
    ranges = [slice(split * length, (split + 1) * length) for split in range(splits)]
    return torch.stack([x[:, k].float() @ weight[:, k].float().T for k in ranges])


SHAPES = {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336)}
"""(outputs, inputs) of the products of an 8B Llama's layer."""


def weight_floor(what: str, nbytes: float) -> str:
    """The floor of a product of few rows, in words."""
    return f"{what} = {nbytes / 1e6:.1f} MB of weight, read once: {nbytes / 3.35e6:.1f} us at 3.35 TB/s"


def compute_floor(outputs: int, inputs: int) -> str:
    """The floor of a product of many rows, in words."""
    return f"2 M N K operations: {2 * outputs * inputs / 989e6:.3f} us a row at 989 TFLOP/s"


def _case(name: str, wide: bool) -> AheadCase:
    outputs, inputs = SHAPES[name]
    tile = gemm_tile(outputs, inputs, wide=wide)
    numbers = ("M", "N", "K", "x_stride", "weight_stride", "out_stride", "out_plane", "split")
    signature = {"x": "*bf16", "weight": "*bf16", "out": "*fp32"} | dict.fromkeys(numbers, "i32")
    return AheadCase(
        name=f"gemm {name} {'prefill' if wide else 'verify'} tile",
        kernel=gemm_kernel,
        signature=signature,
        constants={"BLOCK_N": tile.block_n, "BLOCK_ROWS": tile.block_rows, "BLOCK_K": tile.block_k},
        aligned=tuple(argument for argument in signature if argument not in ("M", "out_plane")),
        options={"num_warps": tile.warps, "num_stages": tile.stages, "enable_fp_fusion": False},
        gate=Gate(116, {"HGMMA": 4, "LDGSTS": 24}, ("HMMA",))
        if wide
        else Gate(152, {"HGMMA": 8, "LDGSTS": 48}, ("HMMA",)),
        floor=compute_floor(outputs, inputs) if wide else weight_floor("2 N K", 2 * outputs * inputs),
        design=(
            "128 x 128 outputs a program, both operands copied asynchronously; row tiles of a weight tile run together."
            if wide
            else f"{cdiv(outputs, tile.block_n)} weight tiles x {tile.splits} ranges of k; three blocks of 16 KB"
            " on their way in each program; rows that are not there are not read."
        ),
    )


AHEAD: tuple[AheadCase, ...] = (*(_case(name, False) for name in SHAPES), _case("gate_up", True))
