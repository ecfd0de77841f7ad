"""Matrix product of a step's rows with a weight of 4-bit codes, which become bf16 in the matrix unit's own registers.

Same cut, same order as `gemm`, hence the same bits as `gemm` on the unpacked weight. The codes lie in memory as the
matrix unit wants its first operand (`w4_weight`), so a tile is copied asynchronously, read 16 bytes a thread, unpacked
and multiplied without another way through shared memory.

Unpacking must keep up with memory: at 3.35 TB/s a multiprocessor has about four instructions for each weight. Two
weights share each of these, in packed bf16:

    and, or:   128 + code          exact: the code is the low bits of a bf16 between 128 and 256
    subtract:  d = code - zero     exact: an integer of at most 5 bits
    multiply:  e = d * low         exact: scale = high + low, high its upper bits, low the 3 that are left
    fma:       d * high + e        exact before its one rounding, so it is bf16(d * scale)

The mask of the `and` comes with the scale: as a constant, the compiler makes it anew before each use, for only one of
the two constants fits into an instruction.

Measured on the machine code (Triton 3.9, a block of 128 x 128 weights on 128 threads, so 128 weights each): the loop
takes 534 instructions, against 908 with fp32 arithmetic, 722 with Triton's own bf16 operations and 586 with a
constant mask. Nothing is stored to shared memory in it. Groups of 64 take 584, of 32 674. Blocks of 64 k take 638
for as many weights; 256 outputs on 8 warps 519, but then one program fits on a multiprocessor, not two. Triton 3.6
takes the unpacked tile through shared memory (676).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.gemm import (
    SHAPES,
    check_product,
    compute_floor,
    gemm_reference,
    grid,
    store_plane,
    weight_floor,
)
from acespec.kernels.launch import interpreting, on_triton
from acespec.kernels.tiles import GemmTile, cdiv, gemm_tile, split_length
from acespec.kernels.w4_weight import W4Weight, dequantize

INTERPRETED = tl.constexpr(interpreting())


@triton.jit
def twice(half):
    """The low 16 bits of a word in both of its halves."""
    half = half & 0xFFFF
    return half | (half << 16)


@triton.jit
def halves(pairs, ROWS: tl.constexpr, PAIRS: tl.constexpr):
    """bf16[ROWS, 2 * PAIRS] from the low and the high half of each word."""
    low = pairs.to(tl.int16).to(tl.bfloat16, bitcast=True)
    high = (pairs >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return tl.reshape(tl.join(low, high), (ROWS, 2 * PAIRS))


@triton.jit
def pairs_of_codes(words, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, CHUNK: tl.constexpr):
    """int32[BLOCK_N, BLOCK_K // 2]: word j has input 2j's code in bits 0..3, input 2j + 1's in 16..19, others above."""
    h, e = tl.arange(0, 2)[:, None], tl.arange(0, 2)[None, :]
    shift = tl.reshape(4 * (2 * h + e), (1, 1, 1, 1, 2, 2))
    threads = tl.reshape(words, (BLOCK_N, BLOCK_K // CHUNK, 4, CHUNK // 32, 1, 1))
    return tl.reshape(tl.permute(threads >> shift, (0, 1, 3, 4, 5, 2)), (BLOCK_N, BLOCK_K // 2))


@triton.jit
def spread(values, ROWS: tl.constexpr, GROUPS: tl.constexpr, WIDTH: tl.constexpr):
    """[ROWS, WIDTH] from [ROWS, GROUPS]: each group's value WIDTH // GROUPS times."""
    return tl.reshape(tl.broadcast_to(values[:, :, None], (ROWS, GROUPS, WIDTH // GROUPS)), (ROWS, WIDTH))


@triton.jit
def scaled_pairs(pairs, zero, high, low, mask):
    """Two bf16 weights in each word, from two codes in each: all operands hold their value in both halves."""
    return tl.inline_asm_elementwise(
        """{
        .reg .b32 d, e;
        lop3.b32 d, $1, $5, 0x43004300, 0xEA;
        sub.rn.bf16x2 d, d, $2;
        mul.rn.bf16x2 e, d, $4;
        fma.rn.bf16x2 $0, d, $3, e;
        }""",
        "=r,r,r,r,r,r",
        [pairs, zero, high, low, mask],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def unpack_tile(words, steps, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUPS: tl.constexpr, CHUNK: tl.constexpr):
    """bf16[BLOCK_N, BLOCK_K] = bf16((code - zero) * scale).

    words: int32[BLOCK_N, BLOCK_K // 8]; steps: int32[BLOCK_N, GROUPS], one for each BLOCK_K // GROUPS inputs.
    """
    PAIRS: tl.constexpr = BLOCK_K // 2
    pairs = pairs_of_codes(words, BLOCK_N, BLOCK_K, CHUNK)
    scale = steps.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    zero = (steps >> 16) & 0xFF
    if INTERPRETED:
        # The interpreter has no PTX.
        codes = tl.reshape(tl.join(pairs & 15, (pairs >> 16) & 15), (BLOCK_N, BLOCK_K))
        apart = (codes - spread(zero, BLOCK_N, GROUPS, BLOCK_K)).to(tl.float32)
        tile = (apart * spread(scale, BLOCK_N, GROUPS, BLOCK_K)).to(tl.bfloat16)
    else:
        high = scale.to(tl.int32, bitcast=True) & -65536
        low = (scale - high.to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)
        scaled = scaled_pairs(
            pairs,
            spread(twice(zero | 0x4300), BLOCK_N, GROUPS, PAIRS),
            spread(twice(high >> 16), BLOCK_N, GROUPS, PAIRS),
            spread(twice(low >> 16), BLOCK_N, GROUPS, PAIRS),
            spread(twice((steps >> 24) & 0xFF), BLOCK_N, GROUPS, PAIRS),
        )
        tile = halves(scaled, BLOCK_N, PAIRS)
    return tile


@triton.jit
def accumulate_w4_tile(
    words,  # int32, [N, K // 8]
    steps,  # int32, [K // GROUP, N]
    x,  # bf16, [M, K]
    outputs,  # int[BLOCK_N]: rows of the weight
    rows,  # int[BLOCK_ROWS]: rows of x
    N,
    M,
    K,
    words_stride,
    steps_stride,
    x_stride,
    start,  # first k, a multiple of BLOCK_K
    stop,  # one past the last k
    BLOCK_N: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    CHUNK: tl.constexpr,
    WHOLE: tl.constexpr,  # K is a multiple of BLOCK_K
):
    """weight[outputs, start:stop] @ x[rows, start:stop].T, f32[BLOCK_N, BLOCK_ROWS]; rows past N or M say nothing."""
    GROUPS: tl.constexpr = max(BLOCK_K // GROUP, 1)
    k, word, group = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_K // 8), tl.arange(0, GROUPS)
    total = tl.zeros((BLOCK_N, BLOCK_ROWS), tl.float32)
    # Outputs past the last repeat it: cheaper than a mask, and they are not stored.
    outputs = tl.minimum(outputs, N - 1)
    word_row = words + outputs[:, None].to(tl.int64) * words_stride
    x_row = x + rows[None, :].to(tl.int64) * x_stride
    for first in tl.range(start, stop, BLOCK_K):
        at, word_at, group_at = first + k, first // 8 + word, first // GROUP + group
        step_at = steps + group_at[None, :] * steps_stride + outputs[:, None]
        if WHOLE:
            w = tl.load(word_row + word_at[None, :])
            s = tl.load(step_at)
            r = tl.load(x_row + at[:, None], mask=rows[None, :] < M, other=0.0)
        else:
            w = tl.load(word_row + word_at[None, :], mask=word_at[None, :] < K // 8, other=0)
            s = tl.load(step_at, mask=group_at[None, :] < K // GROUP, other=0)
            r = tl.load(x_row + at[:, None], mask=(rows[None, :] < M) & (at[:, None] < K), other=0.0)
        total = tl.dot(unpack_tile(w, s, BLOCK_N, BLOCK_K, GROUPS, CHUNK), r, total)
    return total


@triton.jit(
    do_not_specialize=["M", "out_plane"],
    do_not_specialize_on_alignment=["M", "out_plane"],
)
def gemm_w4_kernel(
    x,
    words,
    steps,
    out,
    M,
    N,
    K,
    x_stride,
    words_stride,
    steps_stride,
    out_stride,
    out_plane,  # rows between two planes of out
    split,  # inputs of a range
    BLOCK_N: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    CHUNK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    outputs = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    plane = tl.program_id(2)
    start = plane * split
    stop = tl.minimum(start + split, K)
    total = accumulate_w4_tile(
        words,
        steps,
        x,
        outputs,
        rows,
        N,
        M,
        K,
        words_stride,
        steps_stride,
        x_stride,
        start,
        stop,
        BLOCK_N,
        BLOCK_ROWS,
        BLOCK_K,
        GROUP,
        CHUNK,
        WHOLE,
    )
    store_plane(out, total, plane, outputs, rows, N, M, out_stride, out_plane)


def gemm_w4(x: torch.Tensor, weight: W4Weight, out: torch.Tensor, tile: GemmTile) -> None:
    """out[s] = x[:, range s] @ dequantize(weight)[:, range s].T: the bits of `gemm` on the unpacked weight.

    Args:
        x: bf16[M, K], rows contiguous, any row stride.
        weight: 4-bit codes of shape [N, K].
        out: f32[tile.splits, M, N], rows contiguous; it may be a view of the first M rows of larger planes.
        tile: from `gemm_tile(N, K, "w4")`; block_k a multiple of 128.

    Raises:
        UsageError: the shapes do not fit each other, or a tensor is laid out otherwise.
    """
    (m, k), n = x.shape, weight.shape[0]
    check_product(x, weight.shape, out, tile)
    if not on_triton(x):
        out.copy_(gemm_reference(x, dequantize(weight), tile.splits, tile.block_k))
        return
    if m == 0:
        return
    gemm_w4_kernel[grid(m, n, tile)](
        x,
        weight.words,
        weight.steps,
        out,
        m,
        n,
        k,
        x.stride(0),
        weight.words.stride(0),
        weight.steps.stride(0),
        out.stride(1),
        out.stride(0) // out.stride(1),
        split_length(k, tile.splits, tile.block_k),
        BLOCK_N=tile.block_n,
        BLOCK_ROWS=tile.block_rows,
        BLOCK_K=tile.block_k,
        GROUP=weight.group,
        CHUNK=weight.chunk,
        WHOLE=k % tile.block_k == 0,
        num_warps=tile.warps,
        num_stages=tile.stages,
        enable_fp_fusion=False,
    )


def _case(name: str, wide: bool, group: int = 128) -> AheadCase:
    outputs, inputs = SHAPES[name]
    tile = gemm_tile(outputs, inputs, "w4", wide=wide)
    numbers = ("M", "N", "K", "x_stride", "words_stride", "steps_stride", "out_stride", "out_plane", "split")
    signature = {"x": "*bf16", "words": "*i32", "steps": "*i32", "out": "*fp32"} | dict.fromkeys(numbers, "i32")
    return AheadCase(
        name=f"gemm_w4 {name} {'prefill' if wide else 'verify'} tile, groups of {group}",
        kernel=gemm_w4_kernel,
        signature=signature,
        constants={
            "BLOCK_N": tile.block_n,
            "BLOCK_ROWS": tile.block_rows,
            "BLOCK_K": tile.block_k,
            "GROUP": group,
            "CHUNK": 128,
            "WHOLE": True,
        },
        aligned=tuple(argument for argument in signature if argument not in ("M", "out_plane")),
        options={"num_warps": tile.warps, "num_stages": tile.stages, "enable_fp_fusion": False},
        gate=Gate(180, {"HGMMA": 8, "LDGSTS": 39, "HFMA2": 32}, ("HMMA", "F2FP"))
        if wide
        else Gate(248, {"HGMMA": 16, "LDGSTS": 68, "HFMA2": 64}, ("HMMA", "F2FP")),
        floor=compute_floor(outputs, inputs)
        if wide
        else weight_floor(f"(1/2 + 4/{group}) N K", (0.5 + 4 / group) * outputs * inputs),
        design=(
            "As the verify tile, with 128 rows; each code is unpacked once for all of them."
            if wide
            else f"{cdiv(outputs, tile.block_n)} weight tiles x {tile.splits} ranges of k; codes lie as the matrix unit"
            " wants them, two weights share an instruction of the unpacking, and the unpacked tile stays in registers."
        ),
    )


AHEAD: tuple[AheadCase, ...] = (
    *(_case(name, False) for name in SHAPES),
    _case("gate_up", False, group=32),
    _case("gate_up", True),
)
