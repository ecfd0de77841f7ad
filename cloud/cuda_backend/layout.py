"""Where the rows of a pass stand and what is to be done with each: blocks in, plain arrays out. NumPy only.

Rows stand in visiting order (`tree_order.segments`), so that each descending run of a tree is a range of rows. One
path of a tree, that of its first children, lies in the slots of its positions; the other rows get spare slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.runner import PAGE, Block, pages_for
from acespec.cloud.torch_backend.tree_order import segments
from acespec.kernels.attention_plan import Segment, Span

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """One block's place in a pass.

    Attributes:
        first: its first row in the pass.
        order: which row of the block stands at first, first + 1, ...
        slots: of each row of the block, where its keys and values go.
        sampled: index of its row `sample_from` among the sampled rows of the pass.
        kept: index of that row among the stored logits, or -1.
        on_host: whether its rows are drawn by the host.
    """

    block: Block
    first: int
    order: list[int]
    slots: list[int]
    sampled: int
    kept: int
    on_host: bool

    @property
    def samples(self) -> int:
        """How many of its rows are sampled, if all drafts match."""
        return len(self.block.tokens) - self.block.sample_from

    def span(self) -> Span:
        """What attention has to know of it."""
        block, depths = self.block, self.block.depths
        runs, row = [], self.first
        for rows in _runs(block):
            path = [*block.path(rows[0]), *rows[1:]]
            tail = tuple(self.slots[r] for r in path)
            runs.append(Segment(row, len(rows), block.start + depths[rows[0]], tail))
            row += len(rows)
        return Span(block.pages[: pages_for(block.end)], block.start, self.first, len(block.tokens), tuple(runs))

    def moves(self, path: Sequence[int]) -> list[tuple[int, int]]:
        """(from, to) slots of the rows `path`, from row 0 on, that do not lie where their positions are."""
        homes = (_home(self.block, self.block.start + depth) for depth in range(len(path)))
        return [(self.slots[row], home) for row, home in zip(path, homes, strict=True) if self.slots[row] != home]


@dataclass(frozen=True, slots=True)
class PassLayout:
    """Arrays of a pass; see `lay_out`.

    Attributes:
        tokens, positions, slots: int32[rows].
        gather: int32[sampled]: the row of each sampled row, in the blocks' own order.
        keep: int32[sampled]: where its logits are stored, or -1.
        which: int32[kept]: sampled rows whose stored logits the device draws from, or -1.
        rules: of each sampled row, (rule, position of the token that is drawn).
        walks: int32[blocks, 4]: first row in `parents` and `drafts`, rows, sample_from, first sampled row.
        parents, drafts: int32[rows], in the blocks' own order.
    """

    blocks: list[BlockLayout]
    tokens: Ints
    positions: Ints
    slots: Ints
    gather: Ints
    keep: Ints
    which: Ints
    rules: list[tuple[DrawRule, int]]
    walks: Ints
    parents: Ints
    drafts: Ints


@dataclass(slots=True)
class _Growing:
    """The arrays while they are made."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    gather: list[int] = field(default_factory=list)
    keep: list[int] = field(default_factory=list)
    which: list[int] = field(default_factory=list)
    rules: list[tuple[DrawRule, int]] = field(default_factory=list)
    walks: list[tuple[int, int, int, int]] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)


def lay_out(blocks: Sequence[Block], first_spare: int, vocab_size: int, *, keep_all: bool = False) -> PassLayout:
    """Lay out checked blocks.

    Args:
        first_spare: the first slot for rows of trees that lie beside the laid path.
        vocab_size: decides whether top-k removes anything.
        keep_all: store the logits of all sampled rows, and draw none on the device.
    """
    arrays = _Growing()
    laid: list[BlockLayout] = []
    for block in blocks:
        layout = _laid(block, arrays, first_spare, vocab_size, keep_all)
        first_spare += sum(slot >= first_spare for slot in layout.slots)
        laid.append(layout)
        _append_rows(arrays, layout)
        _append_samples(arrays, layout)
        _append_walk(arrays, layout)
    return PassLayout(
        blocks=laid,
        tokens=_ints(arrays.tokens),
        positions=_ints(arrays.positions),
        slots=_ints(arrays.slots),
        gather=_ints(arrays.gather),
        keep=_ints(arrays.keep),
        which=_ints(arrays.which),
        rules=arrays.rules,
        walks=_ints(arrays.walks).reshape(-1, 4),
        parents=_ints(arrays.parents),
        drafts=_ints(arrays.drafts),
    )


def drawn_on_host(rule: DrawRule, position: int) -> bool:
    """Whether a rule needs more than temperature, filters and noise at or behind `position`."""
    return (
        rule.reads_prefix
        or rule.top_logprobs is not None
        or bool(rule.params.logit_bias)
        or (bool(rule.banned) and position - rule.prompt_len < rule.min_tokens)
    )


def stores_logits(block: Block, vocab_size: int) -> bool:
    """Whether the rows that a block samples are drawn from stored logits, by the device or by the host."""
    return drawn_on_host(block.rule, block.start + 1 + block.sample_from) or filtered(block.rule, vocab_size)


def filtered(rule: DrawRule, vocab_size: int) -> bool:
    """Whether a filter may remove tokens, so that a row has to be seen whole before it is drawn."""
    p = rule.params
    return not p.greedy and (0 < p.top_k < vocab_size or p.top_p < 1.0 or p.min_p > 0.0)


def _laid(block: Block, arrays: _Growing, first_spare: int, vocab_size: int, keep_all: bool) -> BlockLayout:
    order = [row for rows in _runs(block) for row in rows]
    kept = block.sample_from < len(block.tokens) and (keep_all or stores_logits(block, vocab_size))
    return BlockLayout(
        block,
        len(arrays.tokens),
        order,
        _slots(block, order[-1], first_spare),
        len(arrays.gather),
        len(arrays.which) if kept else -1,
        keep_all or drawn_on_host(block.rule, block.start + 1 + block.sample_from),
    )


def _append_rows(arrays: _Growing, layout: BlockLayout) -> None:
    block, depths = layout.block, layout.block.depths
    arrays.tokens += [block.tokens[row] for row in layout.order]
    arrays.positions += [block.start + depths[row] for row in layout.order]
    arrays.slots += [layout.slots[row] for row in layout.order]


def _append_samples(arrays: _Growing, layout: BlockLayout) -> None:
    block, depths = layout.block, layout.block.depths
    stands_at = {row: layout.first + n for n, row in enumerate(layout.order)}
    for row in range(block.sample_from, len(block.tokens)):
        arrays.rules.append((block.rule, block.start + depths[row] + 1))
        arrays.keep.append(len(arrays.which) if layout.kept >= 0 else -1)
        if layout.kept >= 0:
            arrays.which.append(-1 if layout.on_host else len(arrays.gather))
        arrays.gather.append(stands_at[row])


def _append_walk(arrays: _Growing, layout: BlockLayout) -> None:
    block = layout.block
    arrays.walks.append((len(arrays.drafts), len(block.tokens), block.sample_from, layout.sampled))
    arrays.parents += block.parents or range(-1, len(block.tokens) - 1)
    arrays.drafts += block.tokens


def _runs(block: Block) -> list[list[int]]:
    return segments(block.parents) if block.parents else [list(range(len(block.tokens)))]


def _slots(block: Block, last: int, first_spare: int) -> list[int]:
    """Slots of the block's rows; the path to row `last` lies at home."""
    if not block.parents:
        return [_home(block, position) for position in range(block.start, block.start + len(block.tokens))]
    slots = [-1] * len(block.tokens)
    for depth, row in enumerate(block.path(last)):
        slots[row] = _home(block, block.start + depth)
    for row, slot in enumerate(slots):
        if slot < 0:
            slots[row] = first_spare
            first_spare += 1
    return slots


def _home(block: Block, position: int) -> int:
    return block.pages[position // PAGE] * PAGE + position % PAGE


def _ints(values: Sequence[object]) -> Ints:
    return np.array(values, np.int32)
