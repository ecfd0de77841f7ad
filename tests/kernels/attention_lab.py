"""Blocks in a small KV pool, chains and trees, and their attention by the kernels in the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from acespec.kernels.attention import attend, attention_reference, work_on
from acespec.kernels.attention_combine import combine
from acespec.kernels.attention_plan import Segment, Span, plan_attention, row_slots
from acespec.kernels.interpreter import fixed_order_dot

SPLIT = 128
"""Two tiles: a window soon crosses the edges of both."""
ROOT = -1


@dataclass(frozen=True, slots=True)
class Shape:
    """Heads of a small model."""

    kv_heads: int = 2
    group: int = 2
    head: int = 16
    page: int = 64

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group


@dataclass(frozen=True, slots=True)
class Session:
    """What one session's tokens are, whatever the pool looks like: position p of a path has fixed keys and values.

    Attributes:
        start: committed positions.
        parents: of each row of the window, the row that it follows; `ROOT` for the first.
        seed: makes the session's numbers; row r's stem from (seed, its path's labels).
        labels: what tells two siblings apart; a row of a tree and one of a chain with equal paths are equal.
    """

    start: int
    parents: tuple[int, ...]
    seed: int = 0
    labels: tuple[int, ...] = ()

    def path(self, row: int) -> list[int]:
        rows = [row]
        while self.parents[rows[-1]] != ROOT:
            rows.append(self.parents[rows[-1]])
        return rows[::-1]

    def key(self, row: int) -> list[int]:
        labels = self.labels or tuple(range(len(self.parents)))
        return [self.seed, self.start, *(labels[r] for r in self.path(row))]


def chain(start: int, rows: int, seed: int = 0, labels: tuple[int, ...] = ()) -> Session:
    return Session(start, tuple(range(-1, rows - 1)), seed, labels)


def numbers(key: Sequence[int], shape: Shape, count: int) -> torch.Tensor:
    """float32[count, head]: normal, larger for queries than would be usual, so that weights differ much."""
    drawn = np.random.default_rng([k + 1 for k in key]).standard_normal((count, shape.head))
    return torch.from_numpy(drawn.astype(np.float32))


@dataclass(slots=True)
class Lab:
    """A pool, sessions laid in it, and the rows of a step over them.

    Attributes:
        poison: what lies in every slot that nobody wrote.
        scattered: pages are dealt in random order, else one after another.
    """

    shape: Shape = field(default_factory=Shape)
    poison: float = float("nan")
    scattered: bool = True
    seed: int = 5
    spare: int = 64
    capacity: int = 4096
    spans: list[Span] = field(default_factory=list)
    queries: list[torch.Tensor] = field(default_factory=list)
    free: list[int] = field(init=False)
    next_spare: int = field(init=False)
    pool: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        pages = self.capacity // self.shape.page
        order = np.random.default_rng(self.seed).permutation(pages) if self.scattered else np.arange(pages)
        self.free = [int(page) for page in order]
        self.next_spare = self.capacity
        size = (2, self.capacity + self.spare, self.shape.kv_heads, self.shape.head)
        self.pool = torch.full(size, self.poison, dtype=torch.bfloat16)

    def add(self, session: Session, first: int = 0, scale: dict[int, float] | None = None) -> None:
        """Lay a session: its committed positions, then its rows from `first` on; earlier rows count as committed.

        Args:
            scale: factors of chosen rows' keys and values.
        """
        cut = [list(range(first, len(session.parents)))] if _is_chain(session) else _segments(session.parents)
        start, base = session.start + first, len(self.queries)
        end = session.start + max(len(session.path(r)) for r in range(len(session.parents)))
        pages = [self.free.pop(0) for _ in range(-(-end // self.shape.page))]
        history = numbers([session.seed, 99], self.shape, 2 * session.start * self.shape.kv_heads)
        for p, values in enumerate(history.view(session.start, 2, self.shape.kv_heads, self.shape.head)):
            self.pool[:, self._paged(pages, p)] = values.to(torch.bfloat16)
        slots: dict[int, int] = {}
        for number, rows in enumerate([list(range(first)), *cut]):
            for row in rows:
                here = self._paged(pages, session.start + len(session.path(row)) - 1)
                slots[row] = here if number < 2 else self._spare()
                drawn = numbers([*session.key(row), 1], self.shape, 2 * self.shape.kv_heads)
                drawn = drawn.view(2, self.shape.kv_heads, self.shape.head) * (scale or {}).get(row, 1.0)
                self.pool[:, slots[row]] = drawn.to(torch.bfloat16)
        segments = []
        for rows in cut:
            path = session.path(rows[-1])[first:]
            segments.append(
                Segment(
                    len(self.queries),
                    len(rows),
                    session.start + len(session.path(rows[0])) - 1,
                    tuple(slots[r] for r in path),
                )
            )
            for row in rows:
                drawn = numbers([*session.key(row), 2], self.shape, self.shape.heads)
                self.queries.append((3 * drawn * (scale or {}).get(row, 1.0)).to(torch.bfloat16))
        self.spans.append(Span(tuple(pages), start, base, len(self.queries) - base, tuple(segments)))

    def run(
        self,
        *,
        lead: int | None = None,
        programs: int = 3,
        pad: int = 0,
        split: int = SPLIT,
        heads_at_once: int = 8,
        parts_at_once: int = 1,
        dtype: torch.dtype = torch.float32,
    ) -> torch.Tensor:
        """dtype[rows + pad, heads * head]: outputs of all rows so far; as float32 they hide nothing by rounding."""
        shape, rows = self.shape, len(self.queries) + pad
        plan = plan_attention(
            self.spans,
            group=shape.group,
            page=shape.page,
            rows=rows,
            split=split,
            kv_heads=shape.kv_heads,
            programs=programs,
            lead=lead,
        )
        work = work_on(plan)
        q = torch.stack([*self.queries, *[torch.full_like(self.queries[0], float("nan"))] * pad])
        parts = torch.full((plan.n_parts + 1, shape.heads, shape.head), float("nan"))
        stats = torch.full((plan.n_parts + 1, shape.heads, 2), float("nan"))
        out = torch.full((rows, shape.heads * shape.head), float("nan"), dtype=dtype)
        with fixed_order_dot():
            attend(
                q,
                self.pool[0],
                self.pool[1],
                work,
                shape.head**-0.5,
                shape.page,
                parts,
                stats,
                split=split,
                programs=programs,
            )
        combine(parts, stats, work, out, heads_at_once=heads_at_once, parts_at_once=parts_at_once)
        assert parts[-1].isnan().all(), "a partial was written behind the planned ones"
        return out

    def expected(self) -> torch.Tensor:
        """float32[rows, heads * head]: a plain softmax of each row over its own slots."""
        slots = row_slots(self.spans, self.shape.page)
        return attention_reference(torch.stack(self.queries), self.pool[0], self.pool[1], slots, self.shape.head**-0.5)

    def _paged(self, pages: Sequence[int], position: int) -> int:
        return pages[position // self.shape.page] * self.shape.page + position % self.shape.page

    def _spare(self) -> int:
        self.next_spare += 1
        return self.next_spare - 1


def laid(*sessions: Session, **settings: object) -> Lab:
    """A lab with these sessions."""
    lab = Lab(**settings)  # type: ignore[arg-type]
    for session in sessions:
        lab.add(session)
    return lab


def one_at_a_time(session: Session, **settings: object) -> torch.Tensor:
    """Outputs of a chain's rows, each in a step of its own, all before it committed."""
    outs = []
    for row in range(len(session.parents)):
        lab = Lab(**settings)  # type: ignore[arg-type]
        lab.add(Session(session.start, session.parents[: row + 1], session.seed, session.labels[: row + 1]), first=row)
        outs.append(lab.run())
    return torch.cat(outs)


def differing(a: torch.Tensor, b: torch.Tensor) -> int:
    """Elements whose bits differ."""
    assert a.shape == b.shape
    return int((a.view(torch.int32) != b.view(torch.int32)).sum())


def visiting_order(parents: Sequence[int]) -> list[int]:
    """Which row of the session stands at which row of the step."""
    return [row for rows in _segments(parents) for row in rows]


def _is_chain(session: Session) -> bool:
    return session.parents == tuple(range(-1, len(session.parents) - 1))


def _segments(parents: Sequence[int]) -> list[list[int]]:
    """Rows cut into descending runs: each follows its parent while it is that row's first child."""
    runs: list[list[int]] = []
    for row, parent in enumerate(parents):
        run = next((r for r in runs if r[-1] == parent), None)
        if run is None or parent == ROOT:
            runs.append([row])
        else:
            run.append(row)
    return runs
