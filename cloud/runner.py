"""The boundary between scheduling and the model: what a step is, and what runs it.

A step runs the target once over rows of several sessions. Each session brings one `Block`: input tokens at absolute
positions, some of whose rows are sampled. A plain decode step is a block of one token, a verify step a block of the
last committed token and the drafts behind it (a chain or a tree), a prefill chunk a block of which nothing, or only the
last row, is sampled.

KV lives in numbered pages of `PAGE` positions. Which page holds what is the scheduler's business: a block brings its
page table. Rollback is a length change, made by the next block's `start`.

The contract that makes speculation invisible: the logits of a row are a bitwise function of its prefix, so neither the
other rows, nor the other blocks, nor the shape of the draft, nor which pages hold the prefix and who computed them, can
change a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from acespec.cloud.draw_rule import DrawRule
from acespec.proto.errors import InvalidRequest
from acespec.proto.logprobs import TokenLogprobs
from acespec.proto.timing_profile import TimingProfile

PAGE = 64
"""Positions of a KV page."""
PREFILL_CHUNK = 2 * PAGE
"""Rows of one prefill chunk; its edges lie at absolute multiples of this."""


def pages_for(length: int) -> int:
    """Pages that hold `length` positions."""
    return -(-length // PAGE)


@dataclass(frozen=True, slots=True)
class Block:
    """One session's rows in a step.

    Attributes:
        pages: page table: pages[i] holds positions i * PAGE .. (i + 1) * PAGE - 1. Pages from that of `start` on are
            this block's alone; those before it are only read. It may be longer than the block needs.
        start: absolute position of the first row. All positions before it have been run into these pages.
        tokens: inputs. Row 0 stands at `start`; of a chain, row i stands at start + i.
        prefix: the tokens at positions 0 .. start - 1. It may be longer (the session's whole committed list
            serves): only its first `start` items count.
        sample_from: rows with index >= this are sampled, in order, for as long as the drafts match.
            `len(tokens)` samples nothing (an inner prefill chunk).
        rule: how tokens are drawn.
        parents: of a tree, the row that each row follows, below its own index, -1 for row 0; () means a chain.
            A tree is sampled from row 0 on.
    """

    pages: tuple[int, ...]
    start: int
    tokens: tuple[int, ...]
    prefix: Sequence[int]
    sample_from: int
    rule: DrawRule
    parents: tuple[int, ...] = ()

    @property
    def depths(self) -> list[int]:
        """How far behind row 0 each row stands."""
        if not self.parents:
            return list(range(len(self.tokens)))
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return depths

    @property
    def end(self) -> int:
        """Absolute position after the deepest row."""
        return self.start + max(self.depths, default=-1) + 1 if self.parents else self.start + len(self.tokens)

    def path(self, row: int) -> list[int]:
        """Rows from row 0 to `row`."""
        if not self.parents:
            return list(range(row + 1))
        rows = [row]
        while (parent := self.parents[rows[-1]]) >= 0:
            rows.append(parent)
        return rows[::-1]

    def child(self, row: int, token: int) -> int | None:
        """The row that follows `row` with `token`, if there is one."""
        if self.parents:
            rows = (r for r in range(row + 1, len(self.tokens)) if self.parents[r] == row and self.tokens[r] == token)
            return next(rows, None)
        return row + 1 if row + 1 < len(self.tokens) and self.tokens[row + 1] == token else None

    def context(self, row: int) -> list[int]:
        """All tokens that row `row` has seen, itself included: the prefix of the token that it draws."""
        return [*self.prefix[: self.start], *(self.tokens[r] for r in self.path(row))]


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a step drew for one block.

    Attributes:
        tokens: samples in order: all but the last equal drafts, the last is the bonus token. Empty if the block samples
            nothing.
        rows: the block's rows that they were drawn from.
        logprobs: one for each token if the rule asks for them, else empty.
    """

    tokens: tuple[int, ...]
    rows: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = field(default=())


class Runner(Protocol):
    """Runs the target model over blocks; owns the memory of the KV pages. Used from one thread at a time."""

    @property
    def vocab_size(self) -> int:
        """Ids that may be fed and sampled: the tokenizer's vocabulary, without padding rows."""

    @property
    def max_length(self) -> int:
        """Most positions of a sequence."""

    @property
    def pages(self) -> int:
        """KV pages there are, numbered from 0."""

    @property
    def numerics_id(self) -> str:
        """Name of everything besides prefix, position, seed and parameters that decides the bits."""

    @property
    def exact(self) -> bool:
        """Whether the self-check found the bits of a row independent of its company."""

    def step(self, blocks: Sequence[Block]) -> list[Drawn]:
        """Run one forward pass and return, for each block, the target's samples from row `sample_from` on.

        Sampling of a block ends with the first sample that no row of it follows. Afterwards the pages hold the KV of
        row 0 and of the sampled path (or of all rows, if nothing was sampled) at their positions.

        Raises `InvalidRequest`, before anything has changed, for a block that breaks the contract above.
        """

    def timing(self) -> TimingProfile:
        """How long steps take: measured at start, or prescribed."""


def longest_sequence(runner: Runner) -> int:
    """Most positions of a sequence that has all KV pages for itself."""
    return min(runner.max_length, runner.pages * PAGE)


def prefill_chunks(start: int, end: int, chunk: int = PREFILL_CHUNK) -> list[tuple[int, int]]:
    """Cut positions start .. end - 1 into ranges whose inner edges are absolute multiples of `chunk`."""
    edges = [start, *range((start // chunk + 1) * chunk, end, chunk), end]
    return [(a, b) for a, b in pairwise(edges) if a < b]


def walk(block: Block, draw_row: Callable[[int], int]) -> Drawn:
    """Sample a block's rows one after another, `draw_row(row)` each, for as long as drafts match."""
    tokens: list[int] = []
    rows: list[int] = []
    row = block.sample_from if block.sample_from < len(block.tokens) else None
    while row is not None:
        tokens.append(draw_row(row))
        rows.append(row)
        row = block.child(row, tokens[-1])
    return Drawn(tuple(tokens), tuple(rows))


def check_blocks(blocks: Sequence[Block], pages: int, vocab_size: int, max_length: int) -> None:
    """Raise `InvalidRequest` unless `blocks` can run together on a runner with so many pages."""
    if not blocks:
        raise InvalidRequest("a step needs at least one block")
    for block in blocks:
        _check(block, pages, vocab_size, max_length)
    written = [p for block in blocks for p in block.pages[block.start // PAGE :]]
    read = {p for block in blocks for p in block.pages[: block.start // PAGE]}
    if len(set(written)) < len(written) or read & set(written):
        raise InvalidRequest("two blocks of a step share a page that one of them writes; give each its own")


def _check(block: Block, pages: int, vocab_size: int, max_length: int) -> None:
    if not block.tokens:
        raise InvalidRequest("a block without tokens cannot run; leave the session out of the step")
    if block.start < 0 or len(block.prefix) < block.start:
        raise InvalidRequest(f"block at {block.start} brings {len(block.prefix)} prefix tokens; pass them all")
    if not 0 <= block.sample_from <= len(block.tokens):
        raise InvalidRequest(f"sample_from {block.sample_from} lies outside the block's {len(block.tokens)} rows")
    if block.parents:
        ordered = all(-1 < parent < row for row, parent in enumerate(block.parents[1:], 1))
        if len(block.parents) != len(block.tokens) or block.parents[0] != -1 or not ordered or block.sample_from:
            raise InvalidRequest("a tree needs one earlier parent for each row but the first, and samples from row 0")
    if block.end > max_length:
        raise InvalidRequest(f"position {block.end} is beyond the model's {max_length}; shorten the text or the draft")
    if len(block.pages) < pages_for(block.end):
        raise InvalidRequest(f"{len(block.pages)} pages do not hold {block.end} positions; reserve more")
    if any(not 0 <= page < pages for page in block.pages):
        raise InvalidRequest(f"a page outside the {pages} that there are")
    bad = next((t for t in block.tokens if not 0 <= t < vocab_size), None)
    if bad is not None:
        raise InvalidRequest(f"token id {bad} is outside the vocabulary of {vocab_size}; check the tokenizer")
