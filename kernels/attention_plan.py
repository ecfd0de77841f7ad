"""Which part of a step's attention is computed where: from blocks to lists of work, on the host.

What decides the bits is fixed by absolute position and stands here: a row attends over tiles of `TILE` positions,
tiles make up splits of `SPLIT` positions, the state of each split is computed on its own and merged into the row's
running state, ascending. What does not decide bits is planned: which rows share a tile of queries, and how many splits
of a row run one after another in one program. An item covers splits [from, to) of one query tile and leaves one partial
state for each of its rows. Merging is not associative in floating point, so only an item that begins at split 0 may
cover several: that is the running state itself; each later split is a partial of its own.

A position before its block's start lies in the page table and is seen by all rows of the block. From the start on a row
sees its own path only: a list of slots, the tail of its segment. So each segment of a tree is read as if it were laid
as a chain, and both give the same bits. Splits that end at or before the start are read once for all rows of a tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acespec.proto.errors import Exhausted

TILE = 64
"""Positions of one tile of keys: the unit of the online softmax. Decides bits."""
SPLIT = 256
"""Positions of one split, a multiple of `TILE`. Decides bits."""
PACKED = 64
"""Rows of the query matrix of a tile: (row, head of the group) pairs. Decides bits (the matrix instruction's shape)."""
PROGRAMS = 264
"""Programs of a launch, two for each multiprocessor of an H100. Decides no bits."""

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows at consecutive positions of one block, each following the one before.

    Attributes:
        row: its first row in the step.
        start: absolute position of that row.
        tail: the slots of positions span.start .. start + rows - 1 on the path of its last row.
    """

    row: int
    rows: int
    start: int
    tail: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of one block, which stand side by side in the step.

    Attributes:
        pages: page table; as far as it holds positions 0 .. start - 1.
        start: absolute position of the block's first row. Every row of the block sees all positions before it.
        row: its first row in the step.
        segments: all its rows, in order. A chain is one segment.
    """

    pages: tuple[int, ...]
    start: int
    row: int
    rows: int
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Work lists of one step, int32 arrays.

    Attributes:
        items: [items, 4]: tile, from split, to split, which of its rows' partials it leaves. The longest stand first.
        tiles: [tiles, 8]: first row, rows, row of `tables`, start of its block, row of `tails`, end of the positions
            to read, first split, last split + 1.
        tables: [spans, pages]: first slot of each page that holds positions before the span's start.
        tails: [segments, slots]: slot of position start + i at index i.
        positions: [rows]: 0 for padding.
        row_base: [rows]: where the row's partials begin; partial j lies at row_base + j.
        row_parts: [rows]: how many it has; 0 for padding.
    """

    items: Ints
    tiles: Ints
    tables: Ints
    tails: Ints
    positions: Ints
    row_base: Ints
    row_parts: Ints

    @property
    def n_items(self) -> int:
        return len(self.items)

    @property
    def n_parts(self) -> int:
        return int(self.row_parts.sum())


def plan_attention(
    spans: Sequence[Span],
    *,
    group: int,
    page: int,
    rows: int | None = None,
    split: int = SPLIT,
    kv_heads: int = 1,
    programs: int = PROGRAMS,
    lead: int | None = None,
    max_parts: int | None = None,
) -> AttentionPlan:
    """Cut the attention of a step into items.

    Args:
        group: query heads of one KV head, at most `PACKED`.
        page: positions of a page.
        rows: rows of the step with padding; by default as many as the spans have.
        kv_heads, programs: how often each item runs, and over how many programs: for an even load.
        lead: most splits of the item that begins at split 0; None: half of a program's fair share, so that few long
            contexts are spread over all programs and many short ones leave few partials. It changes no bits.
        max_parts: room for partials. If they do not fit, `lead` grows until they do. There are no more items than
            partials and no more tiles than items. Room for rows is always enough for chains, three times that for
            trees no deeper than a split.

    Raises `Exhausted` if `max_parts` is too small for any plan.
    """
    tiles = _tiles(spans, PACKED // group_pad(group), split)
    positions, splits, shared = _row_facts(spans, _row_count(spans, rows), split)
    if lead is None:
        lead = _fair_lead(tiles, kv_heads, programs)
    row_parts = _row_parts(splits, shared, lead)
    while max_parts is not None and row_parts.sum() > max_parts:
        if lead >= splits.max():
            raise Exhausted(
                f"a step needs {row_parts.sum()} attention partials, there is room for {max_parts}: enlarge it"
            )
        lead *= 2
        row_parts = _row_parts(splits, shared, lead)
    return AttentionPlan(
        _items(tiles, lead),
        tiles,
        _padded([[number * page for number in span.pages[: -(-span.start // page)]] for span in spans]),
        _padded([segment.tail for span in spans for segment in span.segments]),
        positions,
        (np.cumsum(row_parts) - row_parts).astype(np.int32),
        row_parts,
    )


def group_pad(group: int) -> int:
    """Rows of the query matrix that a group of heads takes: a power of two, which spares the kernel divisions."""
    return 1 << (group - 1).bit_length()


def row_slots(spans: Sequence[Span], page: int) -> dict[int, list[int]]:
    """Slots of positions 0 .. its own, for each row of the step: what its attention is defined over."""
    seen: dict[int, list[int]] = {}
    for span in spans:
        before = [span.pages[p // page] * page + p % page for p in range(span.start)]
        for segment in span.segments:
            for i in range(segment.rows):
                seen[segment.row + i] = before + list(segment.tail[: segment.start - span.start + i + 1])
    return seen


def _tiles(spans: Sequence[Span], height: int, split: int) -> Ints:
    found: list[tuple[int, ...]] = []
    tail = 0
    for table, span in enumerate(spans):
        prefix = span.start // split if len(span.segments) > 1 else 0
        if prefix:
            for row, rows in _cut(span.row, span.rows, height):
                found.append((row, rows, table, span.start, 0, prefix * split, 0, prefix))
        for segment in span.segments:
            for row, rows in _cut(segment.row, segment.rows, height):
                end = segment.start + row - segment.row + rows
                found.append((row, rows, table, span.start, tail, end, prefix, -(-end // split)))
            tail += 1
    return np.array(found, np.int32).reshape(-1, 8)


def _cut(row: int, rows: int, height: int) -> Iterator[tuple[int, int]]:
    for first in range(row, row + rows, height):
        yield first, min(height, row + rows - first)


def _row_count(spans: Sequence[Span], rows: int | None) -> int:
    return rows if rows is not None else max((span.row + span.rows for span in spans), default=0)


def _row_facts(spans: Sequence[Span], rows: int, split: int) -> tuple[Ints, Ints, Ints]:
    """For each row: its position, its number of splits (0 for padding), how many an item at split 0 may cover."""
    positions, splits = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
    shared = np.full(rows, np.iinfo(np.int32).max, np.int32)
    for span in spans:
        if len(span.segments) > 1 and span.start >= split:
            shared[span.row : span.row + span.rows] = span.start // split
        for segment in span.segments:
            here = slice(segment.row, segment.row + segment.rows)
            positions[here] = np.arange(segment.start, segment.start + segment.rows)
            splits[here] = positions[here] // split + 1
    return positions, splits, shared


def _fair_lead(tiles: Ints, kv_heads: int, programs: int) -> int:
    total = int((tiles[:, 7] - tiles[:, 6]).sum()) * kv_heads
    return max(1, total // programs // 2)


def _row_parts(splits: Ints, shared: Ints, lead: int) -> Ints:
    led = np.minimum(np.minimum(splits, shared), lead)
    return np.where(splits > 0, splits - led + 1, 0).astype(np.int32)


def _items(tiles: Ints, lead: int) -> Ints:
    first, last = tiles[:, 6], tiles[:, 7]
    led = np.where(first == 0, np.minimum(last, lead), 1)
    counts = last - first - led + 1
    # Behind a shared prefix of `first` splits a row has that prefix's partials already.
    before = np.where(first == 0, 0, first - np.minimum(first, lead) + 1)
    tile = np.repeat(np.arange(len(tiles)), counts)
    nth = np.arange(len(tile)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = first[tile] + np.where(nth == 0, 0, led[tile] - 1 + nth)
    stop = np.where(nth == 0, first[tile] + led[tile], start + 1)
    items = np.stack((tile, start, stop, before[tile] + nth), axis=1).astype(np.int32)
    return items[np.argsort(start - stop, kind="stable")]


def _padded(lists: Sequence[Sequence[int]]) -> Ints:
    out = np.zeros((max(1, len(lists)), max(1, max(map(len, lists), default=0))), np.int32)
    for row, values in zip(out, lists, strict=False):
        row[: len(values)] = values
    return out
