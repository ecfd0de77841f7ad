"""Where a block's rows stand: in the step, at their positions, in the pool's pages.

Rows of a chain stand in order and are one segment. Rows of a tree stand in visiting order (`tree_order`), so that each
of its segments is a range of rows at a range of positions. Keys and values are laid segment by segment.

What it costs, measured with SmolLM2, one thread (noisy): reading scattered pages makes a plain step 2 % longer at 64
positions, 5 % at 512, 8 % at 1024; a tree of 16 rows with 8 leaves takes 1.13 times as long as a chain of 16 rows at 64
positions, 1.21 times at 1024.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from acespec.cloud.runner import PAGE, Block, pages_for
from acespec.cloud.torch_backend.attention import Extent, attend, extents
from acespec.cloud.torch_backend.kv_cache import KvCache, runs
from acespec.cloud.torch_backend.tree_order import segments


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of a step at consecutive positions of one block, each following the one before.

    Attributes:
        writes: (rows of the pool, rows of the step) that belong together.
    """

    rows: slice
    positions: slice
    writes: list[tuple[slice, slice]]
    plan: list[Extent]


@dataclass(frozen=True, slots=True)
class Placed:
    """One block's place in a step.

    Attributes:
        first: its first row in the step.
        order: which row of the block stands at first, first + 1, ...
        pages: its page table, as far as it is needed.
        gathered: int64 page numbers if they are not consecutive, else None.
        kept: of a tree, float32[2, rows, kv_heads, head_dim] of each layer run so far.
    """

    block: Block
    first: int
    order: list[int]
    pages: tuple[int, ...]
    segments: list[Segment]
    gathered: torch.Tensor | None
    kept: list[torch.Tensor] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [self.block.tokens[row] for row in self.order]

    @property
    def positions(self) -> Iterator[int]:
        return (position for s in self.segments for position in range(s.positions.start, s.positions.stop))

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + len(self.order))

    def sampled_rows(self) -> torch.Tensor:
        """Rows of the step that hold the block's rows from `sample_from` on, in the block's order."""
        if len(self.segments) == 1:
            return torch.arange(self.first + self.block.sample_from, self.rows.stop)
        return torch.tensor(self.order).argsort().add_(self.first)

    def mix(
        self, kv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, queries: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Lay the block's keys and values in one layer and attend.

        Args:
            kv: float32[2, kv_heads, rows of the pool, head_dim], the layer's pages.
            keys, values: float32[rows of the step, kv_heads, head_dim].
            queries, out: see `attention.attend`.
        """
        seen, first = self._seen(kv)
        for segment in self.segments:
            for in_pool, in_step in segment.writes:
                kv[0, :, in_pool] = keys[in_step].transpose(0, 1)
                kv[1, :, in_pool] = values[in_step].transpose(0, 1)
            if self.gathered is not None:
                seen[0, :, segment.positions] = keys[segment.rows].transpose(0, 1)
                seen[1, :, segment.positions] = values[segment.rows].transpose(0, 1)
            attend(queries, seen, first, segment.plan, out)
        if len(self.segments) > 1:
            self.kept.append(torch.stack((keys[self.rows], values[self.rows])))

    def _seen(self, kv: torch.Tensor) -> tuple[torch.Tensor, int]:
        """(a tensor in which the block's positions lie side by side, where they begin): a copy only if need be."""
        if self.gathered is None:
            return kv, self.pages[0] * PAGE
        by_page = kv.view(*kv.shape[:2], -1, PAGE, kv.shape[-1])
        return by_page.index_select(2, self.gathered).flatten(2, 3), 0

    def relay(self, cache: KvCache, path: Sequence[int]) -> None:
        """Lay keys and values of the block's rows `path`, from row 0 on, where another branch lies."""
        laid = self.block.path(self.order[-1])
        moved = [(depth, row) for depth, row in enumerate(path) if laid[depth : depth + 1] != [row]]
        if not moved or len(self.segments) == 1:
            return
        in_pool = [self._in_pool(self.block.start + depth) for depth, _ in moved]
        rows = [self.order.index(row) for _, row in moved]
        cache.kv[:, :, :, in_pool] = torch.stack(self.kept)[:, :, rows].transpose(2, 3)

    def _in_pool(self, position: int) -> int:
        return self.pages[position // PAGE] * PAGE + position % PAGE


def place(cache: KvCache, blocks: Sequence[Block]) -> list[Placed]:
    """Make room for checked blocks and say where they go."""
    placed: list[Placed] = []
    first = 0
    for block in blocks:
        placed.append(_placed(cache, block, first))
        first += len(block.tokens)
    return placed


def _placed(cache: KvCache, block: Block, first: int) -> Placed:
    depths, end = block.depths, block.end
    pages = block.pages[: pages_for(end)]
    cut = segments(block.parents) if block.parents else [list(range(len(block.tokens)))]
    cache.make_room(pages, block.start, end, end if len(cut) == 1 else block.start)
    consecutive = pages == tuple(range(pages[0], pages[0] + len(pages)))
    placed = Placed(
        block,
        first,
        [row for rows in cut for row in rows],
        pages,
        [],
        None if consecutive else torch.tensor(pages),
    )
    for rows in cut:
        placed.segments.append(_segment(pages, first, block.start + depths[rows[0]], len(rows)))
        first += len(rows)
    return placed


def _segment(pages: tuple[int, ...], first: int, start: int, rows: int) -> Segment:
    """`rows` rows of the step from `first` on, at positions from `start` on."""
    shift, end = first - start, start + rows
    return Segment(
        slice(first, first + rows),
        slice(start, end),
        [
            (slice(at, at + length), slice(position + shift, position + shift + length))
            for position, at, length in runs(pages, start, end)
        ],
        list(extents(first, start, end)),
    )
