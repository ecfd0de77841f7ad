"""Causal attention of a step's rows over their slots, each row as if it were alone.

A row at position p attends over positions 0 .. ceil((p + 1) / TILE) * TILE - 1, the last tile masked: an extent
that its own position decides. Every (row, KV head) pair is an item of its own to torch's attention: the queries of
the head's group stand where others put the sequence, rows stand in the batch. So each item is a product of fixed
shape [group, head_dim] x [head_dim, extent], and neither the other rows, nor the other sessions, nor the number
of threads can change its sums. Masked scores are -inf and add an exact zero, since what is masked is finite
(`kv_cache`, `elementwise.bounded`). K and V are not copied for the rows: the batch has stride 0 there.

What it costs, measured with 9 heads over 3 KV heads of 64, one thread (noisy): 25 us a row and layer at 256
positions, 115 at 1024; a prefill chunk of 128 rows spends 1.8 ms a layer at 256, next to 8 ms in its products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from acespec.cloud.torch_backend.kv_cache import Slot, whole_tiles


@dataclass(frozen=True, slots=True)
class Span:
    """Where one block's rows stand in the step, and where in their slot."""

    first: int
    rows: int
    start: int
    slot: Slot

    @property
    def in_step(self) -> slice:
        return slice(self.first, self.first + self.rows)

    @property
    def in_slot(self) -> slice:
        return slice(self.start, self.start + self.rows)


@dataclass(frozen=True, slots=True)
class Extent:
    """Consecutive rows of a step that attend over the same whole tiles of one slot."""

    rows: slice
    slot: Slot
    length: int
    mask: torch.Tensor


def extents(spans: list[Span]) -> list[Extent]:
    """Cut each block's rows where they enter a new tile. Shared by all layers of a step."""
    return [extent for span in spans for extent in _cut(span)]


def _cut(span: Span) -> Iterator[Extent]:
    position, end = span.start, span.start + span.rows
    while position < end:
        length = whole_tiles(position + 1)
        last = min(end, length)
        rows = slice(span.first + position - span.start, span.first + last - span.start)
        yield Extent(rows, span.slot, length, causal_mask(position, last, length))
        position = last


def causal_mask(first: int, last: int, length: int) -> torch.Tensor:
    """float32[last - first, 1, 1, length]: 0 where position <= the row's own, -inf beyond."""
    hidden = torch.arange(length)[None] > torch.arange(first, last)[:, None]
    return torch.zeros(last - first, length).masked_fill_(hidden, float("-inf"))[:, None, None]


def store(kv: torch.Tensor, rows: slice, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Write float32[n, kv_heads, head_dim] keys and values to positions `rows` of one layer of a slot."""
    kv[0, :, rows] = keys.transpose(0, 1)
    kv[1, :, rows] = values.transpose(0, 1)


def attend(queries: torch.Tensor, layer: int, plan: list[Extent], out: torch.Tensor) -> None:
    """Attention outputs of all planned rows.

    Args:
        queries: float32[rows, kv_heads, group, head_dim].
        out: float32 of the same shape, written in place; rows outside the plan are left alone.
    """
    for extent in plan:
        keys, values = extent.slot.kv[layer, :, :, : extent.length]
        out[extent.rows] = _alone(queries[extent.rows], keys, values, extent.mask)


def _alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    rows, kv_heads = q.shape[0], q.shape[1]
    if rows * kv_heads == 1:
        # A single item would be handed to the threads inside its products, not as a whole.
        return _alone(q.expand(2, -1, -1, -1), k, v, mask.expand(2, -1, -1, -1))[:1]
    k, v = k.expand(rows, -1, -1, -1), v.expand(rows, -1, -1, -1)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
