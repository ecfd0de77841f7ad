"""From the fused q, k, v product to attention: bias, bound, head norms, rotation, and the write into the KV pool.

The rotation (Su et al., arXiv 2104.09864) is the half-split one of Llama and Qwen: (a, b) -> (a cos - b sin,
b cos + a sin), where a is the first half of a head and b the second. Cosines and sines come from a table, so a row's
bits depend on its position alone. NaN and what is beyond +-1e15 is replaced by that bound before it is used: a
masked key adds an exact zero only if it is finite, so a hostile row could otherwise reach others through the pool.

Everything is rounded by IEEE 754 and equals the reference bit for bit; with head norms (Qwen3) the order of a sum
of squares differs, which a bf16 result shows rarely, and then by a unit in its last place.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from acespec.kernels.add_norm import require_dense, rows_apart, sum_partials, sum_partials_reference
from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.launch import on_triton
from acespec.kernels.tiles import gemm_tile

BOUND = 1e15
HEAD_BLOCK = 8
"""Heads a program; all of one kind (query, key or value)."""


@triton.jit
def _bounded_heads(
    partials, plane, bias, head, lane, inside, DIM: tl.constexpr, SPLITS: tl.constexpr, BOUND: tl.constexpr
):
    """(first half, second half) of some heads of a row, float32[HEAD_BLOCK, HALF_BLOCK] each."""
    low = head * DIM + lane
    high = low + DIM // 2
    a = sum_partials(partials, plane, low, inside, SPLITS)
    b = sum_partials(partials, plane, high, inside, SPLITS)
    if bias is not None:
        a += tl.load(bias + low, mask=inside, other=0.0)
        b += tl.load(bias + high, mask=inside, other=0.0)
    # NaN is not less than anything, and so becomes +BOUND.
    a, b = tl.where(a < BOUND, a, BOUND), tl.where(b < BOUND, b, BOUND)
    return tl.where(a > -BOUND, a, -BOUND), tl.where(b > -BOUND, b, -BOUND)


@triton.jit
def _turned(a, b, norm, eps, cos, sin, lane, DIM: tl.constexpr):
    """Heads normalised, if there is a weight, and rotated; `cos` and `sin` point at the row's angles."""
    inside = lane < DIM // 2
    if norm is not None:
        mean = tl.sum(a * a + b * b, 1) * (1.0 / DIM)
        scale = tl.math.div_rn(1.0, tl.math.sqrt_rn(mean + eps))[:, None]
        a = a * scale * tl.load(norm + lane, mask=inside, other=0.0)
        b = b * scale * tl.load(norm + DIM // 2 + lane, mask=inside, other=0.0)
    c = tl.load(cos + lane, mask=inside, other=0.0)
    s = tl.load(sin + lane, mask=inside, other=0.0)
    return a * c - b * s, b * c + a * s


@triton.jit
def _store_heads(target, a, b, head, lane, inside, DIM: tl.constexpr):
    tl.store(target + head * DIM + lane, a.to(tl.bfloat16), mask=inside)
    tl.store(target + head * DIM + DIM // 2 + lane, b.to(tl.bfloat16), mask=inside)


@triton.jit(do_not_specialize=["plane_rows"], do_not_specialize_on_alignment=["plane_rows", "positions", "slots"])
def rope_kv_kernel(
    partials,
    bias,
    q_norm,
    k_norm,
    eps,
    cos,
    sin,
    positions,
    slots,
    q,
    k_pool,
    v_pool,
    plane_rows,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    SPLITS: tl.constexpr,
    BOUND: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
):
    """sm_90, 32 and 8 heads of 128, S = 4: 46 registers (56 with a bias). The three kinds of program together have
    6 S + 4 LDG.E.128 (6 more with a bias, 4 with norms), 2 LDG.E and 4 STG.E.64. No barrier and no shared memory; no
    FFMA but in the norms' root and quotient.
    """
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    Q_BLOCKS: tl.constexpr = (HEADS + HEAD_BLOCK - 1) // HEAD_BLOCK
    KV_BLOCKS: tl.constexpr = (KV_HEADS + HEAD_BLOCK - 1) // HEAD_BLOCK
    WIDTH: tl.constexpr = (HEADS + 2 * KV_HEADS) * DIM
    lane = tl.arange(0, HALF_BLOCK)[None, :]
    step = tl.arange(0, HEAD_BLOCK)[:, None]
    position = tl.load(positions + row).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    angles = position * (DIM // 2)
    plane = plane_rows.to(tl.int64) * WIDTH
    partials += row * WIDTH
    if block < Q_BLOCKS:
        head = block * HEAD_BLOCK + step
        inside = (head < HEADS) & (lane < DIM // 2)
        a, b = _bounded_heads(partials, plane, bias, head, lane, inside, DIM, SPLITS, BOUND)
        a, b = _turned(a, b, q_norm, eps, cos + angles, sin + angles, lane, DIM)
        _store_heads(q + row * (HEADS * DIM), a, b, head, lane, inside, DIM)
    elif block < Q_BLOCKS + KV_BLOCKS:
        head = (block - Q_BLOCKS) * HEAD_BLOCK + step
        inside = (head < KV_HEADS) & (lane < DIM // 2)
        a, b = _bounded_heads(partials, plane, bias, HEADS + head, lane, inside, DIM, SPLITS, BOUND)
        a, b = _turned(a, b, k_norm, eps, cos + angles, sin + angles, lane, DIM)
        if slot >= 0:
            _store_heads(k_pool + slot * (KV_HEADS * DIM), a, b, head, lane, inside, DIM)
    else:
        head = (block - Q_BLOCKS - KV_BLOCKS) * HEAD_BLOCK + step
        inside = (head < KV_HEADS) & (lane < DIM // 2)
        a, b = _bounded_heads(partials, plane, bias, HEADS + KV_HEADS + head, lane, inside, DIM, SPLITS, BOUND)
        if slot >= 0:
            _store_heads(v_pool + slot * (KV_HEADS * DIM), a, b, head, lane, inside, DIM)


def rope_kv(
    partials: torch.Tensor,
    bias: torch.Tensor | None,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
) -> None:
    """Fill q, and the slots of the pools, from the partial sums of the fused product.

    Args:
        partials: float32[S, M, (heads + 2 kv_heads) head_dim] with dense rows: queries, then keys, then values.
        bias: float32[(heads + 2 kv_heads) head_dim] or None (Qwen2 has one).
        q_norm, k_norm: float32[head_dim] or None (Qwen3 has them); `eps` is theirs.
        cos, sin: float32[L, head_dim / 2], the angles of position 0 .. L - 1.
        positions: int32[M], each below L.
        slots: int32[M], the row's place in the pools; -1: its key and value are not stored.
        q: bfloat16[M, heads, head_dim].
        k_pool, v_pool: bfloat16[slots, kv_heads, head_dim].
        All but `partials` are contiguous.

    Raises:
        UsageError: a tensor is not laid out so.
    """
    if not on_triton(partials):
        queries, keys, values = rope_kv_reference(
            partials, bias, q_norm, k_norm, eps, cos, sin, positions, (q.shape[1], k_pool.shape[1])
        )
        q.copy_(queries)
        kept = slots >= 0
        k_pool[slots[kept].long()] = keys[kept]
        v_pool[slots[kept].long()] = values[kept]
        return
    require_dense(cos, sin, positions, slots, q, k_pool, v_pool)
    rows, heads, dim = q.shape
    if rows == 0:
        return
    kv_heads = k_pool.shape[1]
    head_block = min(HEAD_BLOCK, triton.next_power_of_2(heads))
    half_block = triton.next_power_of_2(dim // 2)
    rope_kv_kernel[(rows, triton.cdiv(heads, head_block) + 2 * triton.cdiv(kv_heads, head_block))](
        partials,
        bias,
        q_norm,
        k_norm,
        eps,
        cos,
        sin,
        positions,
        slots,
        q,
        k_pool,
        v_pool,
        rows_apart(partials),
        HEADS=heads,
        KV_HEADS=kv_heads,
        DIM=dim,
        SPLITS=len(partials),
        BOUND=BOUND,
        HEAD_BLOCK=head_block,
        HALF_BLOCK=half_block,
        num_warps=max(1, head_block * half_block // 128),
        num_stages=1,
        enable_fp_fusion=False,
    )


def rope_kv_reference(
    partials: torch.Tensor,
    bias: torch.Tensor | None,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    eps: float,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    heads: tuple[int, int],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """bfloat16 (queries [M, heads, head_dim], keys, values [M, kv_heads, head_dim]); `heads` = (heads, kv_heads)."""
    qkv = sum_partials_reference(partials)
    if bias is not None:
        qkv = qkv + bias
    # fmin and fmax return the other operand if one is NaN.
    bounded = torch.fmax(torch.fmin(qkv, torch.tensor(BOUND)), torch.tensor(-BOUND))
    by_head = bounded.view(len(qkv), heads[0] + 2 * heads[1], -1)
    queries, keys, values = by_head.split([heads[0], heads[1], heads[1]], 1)
    angles = cos[positions.long()][:, None], sin[positions.long()][:, None]
    turned = [
        _rotated(x if weight is None else _head_norm(x, weight, eps), *angles)
        for x, weight in ((queries, q_norm), (keys, k_norm))
    ]
    return turned[0].to(torch.bfloat16), turned[1].to(torch.bfloat16), values.to(torch.bfloat16)


def _head_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * (1.0 / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)) * weight


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


_HEADS, _KV_HEADS, _DIM = 32, 8, 128
_WIDTH = (_HEADS + 2 * _KV_HEADS) * _DIM


def _case(name: str, *, bias: bool = False, norms: bool = False) -> AheadCase:
    splits = gemm_tile(_WIDTH, _HEADS * _DIM).splits
    floats = ("partials", *(["bias"] if bias else []), *(["q_norm", "k_norm"] if norms else []), "cos", "sin")
    absent = {"bias", "q_norm", "k_norm"} - set(floats)
    pools = ("q", "k_pool", "v_pool")
    nowhere = ("BAR", "LDS", "STS") if norms else ("BAR", "LDS", "STS", "FFMA")
    return AheadCase(
        name=name,
        kernel=rope_kv_kernel,
        signature={
            **dict.fromkeys(floats, "*fp32"),
            **dict.fromkeys(("positions", "slots"), "*i32"),
            **dict.fromkeys(pools, "*bf16"),
            "eps": "fp32",
            "plane_rows": "i32",
        },
        constants={
            "HEADS": _HEADS,
            "KV_HEADS": _KV_HEADS,
            "DIM": _DIM,
            "SPLITS": splits,
            "BOUND": BOUND,
            "HEAD_BLOCK": HEAD_BLOCK,
            "HALF_BLOCK": _DIM // 2,
            **dict.fromkeys(absent),
        },
        aligned=(*floats, *pools),
        options={"num_warps": 4, "num_stages": 1, "enable_fp_fusion": False},
        gate=Gate(
            registers=64,
            at_least={"LDG": 6 * splits + 6, "STG": 4},
            none=nowhere,
        ),
        floor=(
            "(heads + 2 kv_heads) head_dim (4 S + 2) bytes a row for S partials, and 4 head_dim of angles. "
            "32 and 8 heads of 128, S = 2: 60.5 KiB a row."
        ),
        design=(
            "Six programs a row: eight heads of one kind each, 128 threads of four columns of both halves, so that a "
            "rotation needs no other thread. Loads move 16 bytes; a warp stores two heads' halves of 128 bytes each, "
            "whole sectors with 8 bytes a thread. Head norms add a sum over 16 threads of a warp."
        ),
    )


AHEAD: tuple[AheadCase, ...] = (
    _case("rope_kv"),
    _case("rope_kv, bias", bias=True),
    _case("rope_kv, head norms", norms=True),
)
