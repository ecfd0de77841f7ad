"""Paged attention of a few query rows, split over positions, with the query heads of a KV head packed into one tile.

The plan is that of `attention_plan`: a program takes (item, KV head) pairs, walks the item's splits and leaves for each
row an unnormalised sum of values, the maximum and the sum of its weights, which `attention_combine` merges. Within a
split it is the online softmax of FlashAttention (Dao et al., arXiv 2205.14135) over tiles of `TILE` positions, scores
in the log2 domain; splits are those of Flash-Decoding (Dao, Haziza, Massa, Sizov, 2023), but of fixed size at absolute
positions, so that a row's bits know nothing of its company. What lies behind a row's position weighs exactly 0, the
running maximum is finite, and keys and values behind a tile's end are never read: stale slots may hold anything.

Machine code (sm_90, Triton 3.9, head_dim 128, group 4): 241 registers, no spills, 113 KiB of shared memory, of which
two programs take all that a multiprocessor has. Slots arrive one tile before keys and values, so it takes 5 stages for
those of the next tile to arrive while this one is computed; with 3 or 4 each tile waits for its own. What kept
registers low: no masks in the loop (13 fewer), reading again what the last lines need instead of holding it (4 words of
spills fewer), powers of two for groups of 5 and 7 (2 words). Not so a running state that waits in memory, 8 warps, or a
loop of its own for whole pages; a ceiling of 208 spills 22 words. Tiles of 32 positions took 20 registers less for
twice the waits. Triton 3.6 spills one word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from acespec.kernels.ahead_case import AheadCase, Gate
from acespec.kernels.attention_plan import PACKED, PROGRAMS, SPLIT, TILE, AttentionPlan, group_pad
from acespec.kernels.launch import on_triton

LOWEST = tl.constexpr(-3.0e38)
"""Stands for minus infinity: finite, so that no difference of two maxima is NaN."""
OPTIONS = {"num_warps": 4, "num_stages": 5, "enable_fp_fusion": False}
_INDICES = ["items", "n_items", "tiles", "tables", "tails", "positions", "row_base", "table_width", "tail_width"]


@dataclass(frozen=True, slots=True)
class AttentionWork:
    """An `AttentionPlan` where the kernels run: int32 tensors, contiguous, of any larger capacity.

    Attributes:
        n_items: int32[1], how many of `items` count; read by the kernel, so that a captured launch serves all plans.
    """

    items: torch.Tensor
    n_items: torch.Tensor
    tiles: torch.Tensor
    tables: torch.Tensor
    tails: torch.Tensor
    positions: torch.Tensor
    row_base: torch.Tensor
    row_parts: torch.Tensor


def work_on(plan: AttentionPlan, device: torch.device | str = "cpu") -> AttentionWork:
    """The plan's lists on `device`, of just their size."""
    counted = torch.tensor([plan.n_items], dtype=torch.int32)
    lists = (plan.tiles, plan.tables, plan.tails, plan.positions, plan.row_base, plan.row_parts)
    items, *rest = (torch.from_numpy(values).to(device) for values in (plan.items, *lists))
    return AttentionWork(items, counted.to(device), *rest)


@triton.jit
def merge(top, total, acc, top_next, total_next, acc_next):
    """Join two states (maximum [n], sum of weights [n], sum of values [n, d]), the earlier positions' first."""
    new = tl.maximum(top, top_next)
    keep = tl.math.exp2(top - new)
    add = tl.math.exp2(top_next - new)
    return new, total * keep + total_next * add, acc * keep[:, None] + acc_next * add[:, None]


@triton.jit
def _slots(position, table, tail, start, PAGE: tl.constexpr):
    """Slots of positions: through the table of pages before `start`, through the tail from there on."""
    paged = position < start
    at = tl.where(paged, table + position // PAGE, tail + (position - start))
    return tl.load(at) + tl.where(paged, position % PAGE, 0)


@triton.jit(do_not_specialize=["table_width", "tail_width"], do_not_specialize_on_alignment=_INDICES)
def _attend(
    q,
    k_pool,
    v_pool,
    items,
    n_items,
    tiles,
    tables,
    tails,
    positions,
    row_base,
    parts,
    stats,
    scale,
    table_width,
    tail_width,
    HEAD: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    PAGE: tl.constexpr,
    SPLIT: tl.constexpr,
    TILE: tl.constexpr,
    PACKED: tl.constexpr,
    STAGES: tl.constexpr,
):
    packed = tl.arange(0, PACKED)
    columns = tl.arange(0, TILE)
    dims = tl.arange(0, HEAD_PAD)
    inside = dims < HEAD
    for unit in range(tl.program_id(0), tl.load(n_items) * KV_HEADS, tl.num_programs(0)):
        item = items + unit // KV_HEADS * 4
        kv_head = unit % KV_HEADS
        tile = tiles + tl.load(item) * 8
        from_split = tl.load(item + 1)
        to_split = tl.load(item + 2)
        row = tl.load(tile) + packed // GROUP_PAD
        live = (packed // GROUP_PAD < tl.load(tile + 1)) & (packed % GROUP_PAD < GROUP)
        table = tables + tl.load(tile + 2).to(tl.int64) * table_width
        start = tl.load(tile + 3)
        tail = tails + tl.load(tile + 4).to(tl.int64) * tail_width
        end = tl.load(tile + 5)
        position = tl.load(positions + row, mask=live, other=-1)
        at = row.to(tl.int64) * (KV_HEADS * GROUP) + kv_head * GROUP + packed % GROUP_PAD
        query = tl.load(q + at[:, None] * HEAD + dims[None, :], mask=live[:, None] & inside[None, :], other=0.0)
        top = tl.full((PACKED,), LOWEST, tl.float32)
        total = tl.zeros((PACKED,), tl.float32)
        acc = tl.zeros((PACKED, HEAD_PAD), tl.float32)
        for split in range(from_split, to_split):
            top_s = tl.full((PACKED,), LOWEST, tl.float32)
            total_s = tl.zeros((PACKED,), tl.float32)
            acc_s = tl.zeros((PACKED, HEAD_PAD), tl.float32)
            for first in tl.range(split * SPLIT, tl.minimum(split * SPLIT + SPLIT, end), TILE, num_stages=STAGES):
                here = first + columns
                # Behind the end the last position is read again, which costs nothing and needs no mask.
                slot = _slots(tl.minimum(here, end - 1), table, tail, start, PAGE)
                base = (slot.to(tl.int64) * KV_HEADS + kv_head) * HEAD
                keys = tl.load(k_pool + base[None, :] + dims[:, None], mask=inside[:, None], other=0.0)
                scores = tl.dot(query, keys) * scale
                seen = here[None, :] <= position[:, None]
                scores = tl.where(seen, scores, LOWEST)
                new = tl.maximum(top_s, tl.max(scores, 1))
                weights = tl.where(seen, tl.math.exp2(scores - new[:, None]), 0.0)
                keep = tl.math.exp2(top_s - new)
                total_s = total_s * keep + tl.sum(weights, 1)
                values = tl.load(v_pool + base[:, None] + dims[None, :], mask=inside[None, :], other=0.0)
                acc_s = tl.dot(weights.to(values.dtype), values, acc_s * keep[:, None])
                top_s = new
            top, total, acc = merge(top, total, acc, top_s, total_s, acc_s)
        # Read again past the first cache, which the compiler takes for other loads: see above.
        row = tl.load(tile, cache_modifier=".cg") + packed // GROUP_PAD
        live = (packed // GROUP_PAD < tl.load(tile + 1, cache_modifier=".cg")) & (packed % GROUP_PAD < GROUP)
        position = tl.load(positions + row, mask=live, other=-1, cache_modifier=".cg")
        # A row that stands before this item's first split has no such partial: it would lie in another row's place.
        own = live & (position >= from_split * SPLIT)
        part = tl.load(row_base + row, mask=own, other=0) + tl.load(item + 3, cache_modifier=".cg")
        to = part.to(tl.int64) * (KV_HEADS * GROUP) + kv_head * GROUP + packed % GROUP_PAD
        tl.store(parts + to[:, None] * HEAD + dims[None, :], acc, mask=own[:, None] & inside[None, :])
        tl.store(stats + to * 2, top, mask=own)
        tl.store(stats + to * 2 + 1, total, mask=own)


def attend(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    work: AttentionWork,
    scale: float,
    page: int,
    parts: torch.Tensor,
    stats: torch.Tensor,
    *,
    split: int = SPLIT,
    programs: int = PROGRAMS,
) -> None:
    """Write the partial states of all items. All tensors are contiguous.

    Args:
        q: bf16[rows, heads, head_dim], heads of one KV head side by side.
        k_pool, v_pool: bf16[slots, kv_heads, head_dim], aligned to 16 bytes.
        scale: of the scores, as a rule head_dim ** -0.5.
        page: positions of a page; as the plan had it, like `split`.
        parts: float32[n, heads, head_dim], for at least plan.n_parts partials: sum of weights times values.
        stats: float32[n, heads, 2]: log2 of the greatest weight, sum of the weights over the greatest.
        programs: size of the grid; decides no bits.
    """
    heads, head = q.shape[1:]
    kv_heads = k_pool.shape[1]
    if not on_triton(q):
        attend_reference(q, k_pool, v_pool, work, scale, page, parts, stats, split=split)
        return
    _attend[(programs,)](
        q,
        k_pool,
        v_pool,
        work.items,
        work.n_items,
        work.tiles,
        work.tables,
        work.tails,
        work.positions,
        work.row_base,
        parts,
        stats,
        scale * math.log2(math.e),
        work.tables.shape[1],
        work.tails.shape[1],
        HEAD=head,
        HEAD_PAD=max(16, triton.next_power_of_2(head)),
        KV_HEADS=kv_heads,
        GROUP=heads // kv_heads,
        GROUP_PAD=group_pad(heads // kv_heads),
        PAGE=page,
        SPLIT=split,
        TILE=TILE,
        PACKED=PACKED,
        STAGES=OPTIONS["num_stages"],
        **OPTIONS,
    )


def attend_reference(
    q: torch.Tensor,
    k_pool: torch.Tensor,
    v_pool: torch.Tensor,
    work: AttentionWork,
    scale: float,
    page: int,
    parts: torch.Tensor,
    stats: torch.Tensor,
    *,
    split: int = SPLIT,
) -> None:
    """What `attend` does, item by item and row by row in fp32."""
    for tile, first, last, nth in work.items[: int(work.n_items)].tolist():
        row0, rows, table, start, tail, *_ = work.tiles[tile].tolist()
        for row in range(row0, row0 + rows):
            seen = torch.arange(first * split, min(last * split, int(work.positions[row]) + 1), device=q.device)
            if len(seen) == 0:
                continue
            paged, own = seen[seen < start], seen[seen >= start]
            before = work.tables[table, paged // page] + paged % page
            slots = torch.cat((before, work.tails[tail, own - start]))
            part = int(work.row_base[row]) + nth
            scores, values = _scores(q[row], k_pool, v_pool, slots, scale)
            top = scores.amax(-1)
            weights = torch.exp2(scores - top[:, None])
            stats[part] = torch.stack((top, weights.sum(-1)), dim=-1)
            parts[part] = torch.einsum("hp,phd->hd", weights, values)


def attention_reference(
    q: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, slots: Mapping[int, Sequence[int]], scale: float
) -> torch.Tensor:
    """float32[rows, heads * head_dim]: a plain softmax of each row over its `slots` (see `attention_plan.row_slots`).

    Knows nothing of plans, tiles and splits. A row that `slots` lacks gets zeros.
    """
    out = torch.zeros(q.shape[0], q.shape[1] * q.shape[2], device=q.device)
    for row, seen in slots.items():
        scores, values = _scores(q[row], k_pool, v_pool, torch.tensor(seen, device=q.device), scale)
        weights = torch.softmax(scores * math.log(2.0), dim=-1)
        out[row] = torch.einsum("hp,phd->hd", weights, values).flatten()
    return out


def _scores(
    query: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, slots: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(scores in the log2 domain [heads, slots], values [slots, heads, head_dim]) in fp32, KV heads repeated."""
    group = query.shape[0] // k_pool.shape[1]
    keys = k_pool[slots.long()].float().repeat_interleave(group, dim=1)
    values = v_pool[slots.long()].float().repeat_interleave(group, dim=1)
    return torch.einsum("hd,phd->hp", query.float(), keys) * (scale * math.log2(math.e)), values


def _case(name: str, head: int, kv_heads: int, group: int, gate: Gate) -> AheadCase:
    pointers = dict.fromkeys(("q", "k_pool", "v_pool"), "*bf16")
    indices = dict.fromkeys(_INDICES[:7], "*i32")
    return AheadCase(
        name,
        _attend,
        {
            **pointers,
            **indices,
            "parts": "*fp32",
            "stats": "*fp32",
            "scale": "fp32",
            "table_width": "i32",
            "tail_width": "i32",
        },
        {
            "HEAD": head,
            "HEAD_PAD": triton.next_power_of_2(head),
            "KV_HEADS": kv_heads,
            "GROUP": group,
            "GROUP_PAD": group_pad(group),
            "PAGE": 64,
            "SPLIT": SPLIT,
            "TILE": TILE,
            "PACKED": PACKED,
            "STAGES": OPTIONS["num_stages"],
        },
        ("q", "k_pool", "v_pool", "parts", "stats"),
        OPTIONS,
        gate,
        floor="reads keys and values once for each block: 4 * positions * kv_heads * head_dim bytes at memory rate",
        design=(
            "The heads of a group and the rows of a block share one tile of queries, so keys and values are read once. "
            "Splits of 256 positions spread one long context over all multiprocessors; two programs on each hide one "
            "another's start, and asynchronous copies bring the next tile while this one is computed."
        ),
    )


AHEAD: tuple[AheadCase, ...] = (
    _case("attention, Llama 8B", 128, 8, 4, Gate(248, {"HGMMA": 12, "LDGSTS": 48})),
    _case("attention, group of 5", 128, 8, 5, Gate(255, {"HGMMA": 12, "LDGSTS": 48})),
    _case("attention, head_dim 64, group of 3", 64, 3, 3, Gate(224, {"HGMMA": 8, "LDGSTS": 24})),
)
