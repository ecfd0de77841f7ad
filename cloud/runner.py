"""The boundary between scheduling and the model: what a step is, and what runs it.

A step runs the target once over rows of several sessions. Each session brings one `Block`: consecutive
input tokens at absolute positions, some of whose rows are sampled. The runner keeps one KV slot a session;
rollback is a length change, done by the next block's `start`. A plain decode step is a block of one token, a
verify step a block of [last committed token + drafts], a prefill chunk a block of which nothing, or only the
last row, is sampled.

The contract that makes speculation invisible: the logits of a row are a bitwise function of its prefix, so
neither the other rows, nor the other blocks, nor how the prefix got into the KV slot can change a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from acespec.proto.errors import InvalidRequest
from acespec.proto.sampling_params import SamplingParams

PREFILL_CHUNK = 128
"""Rows of one prefill chunk; its edges lie at absolute multiples of this."""


@dataclass(frozen=True, slots=True)
class Block:
    """One session's rows in a step.

    Attributes:
        slot: KV slot from `Runner.allocate`.
        start: absolute position of `tokens[0]`. KV kept beyond `start` is dropped first, so `start` may be at
            most the slot's length; everything before it must have been run.
        tokens: inputs at positions start, start + 1, ...: the last committed token and drafts, or a prefill
            chunk.
        prefix: the tokens at positions 0 .. start - 1, read by penalties only. It may be longer (the
            session's whole committed list serves): only its first `start` items count.
        sample_from: rows with index >= this are sampled, in order, for as long as the drafts match.
            `len(tokens)` samples nothing (an inner prefill chunk).
        params: how tokens are drawn.
        seed: 64-bit noise seed of the request.
        prompt_len: length of the prompt in tokens: where the generated part begins.
    """

    slot: int
    start: int
    tokens: tuple[int, ...]
    prefix: Sequence[int]
    sample_from: int
    params: SamplingParams
    seed: int
    prompt_len: int

    @property
    def end(self) -> int:
        """Absolute position after the last row: the slot's length once the step is done."""
        return self.start + len(self.tokens)

    def context(self, row: int) -> list[int]:
        """All tokens that row `row` has seen, itself included: the prefix of the token that it draws."""
        return [*self.prefix[: self.start], *self.tokens[: row + 1]]


class Runner(Protocol):
    """Runs the target model over blocks; owns the KV slots. Used from one thread at a time."""

    @property
    def vocab_size(self) -> int:
        """Ids that may be fed and sampled: the tokenizer's vocabulary, without padding rows."""

    @property
    def max_length(self) -> int:
        """Most positions that a slot can hold."""

    @property
    def numerics_id(self) -> str:
        """Name of everything besides prefix, position, seed and parameters that decides the bits."""

    @property
    def exact(self) -> bool:
        """Whether the self-check found the bits of a row independent of its company."""

    def allocate(self) -> int:
        """Reserve an empty KV slot. Raises `Exhausted` if there is no room."""

    def release(self, slot: int) -> None:
        """Give a slot and its memory back; its number may be handed out again."""

    def length(self, slot: int) -> int:
        """Positions whose KV the slot holds."""

    def step(self, blocks: Sequence[Block]) -> list[tuple[int, ...]]:
        """Run one forward pass and return, for each block, the target's samples from row `sample_from` on.

        Sampling of a block ends with the first sample that differs from the next input token, which is
        included, or with its last row. So of n samples the first n - 1 equal drafts and the last is the bonus.
        Afterwards each slot holds KV for all of its block's rows; the next block's `start` cuts what was
        rejected.

        Raises `InvalidRequest`, before anything has changed, for a block that breaks the contract above.
        """

    def cost_curve(self) -> list[tuple[int, float]]:
        """(rows, seconds) of a step, measured at start on short contexts; both non-decreasing."""


def prefill_chunks(start: int, end: int, chunk: int = PREFILL_CHUNK) -> list[tuple[int, int]]:
    """Cut positions start .. end - 1 into ranges whose inner edges are absolute multiples of `chunk`."""
    edges = [start, *range((start // chunk + 1) * chunk, end, chunk), end]
    return [(a, b) for a, b in pairwise(edges) if a < b]


def draw(block: Block, sample_row: Callable[[int], int]) -> tuple[int, ...]:
    """Sample a block's rows one after another, `sample_row(row)` each, for as long as the drafts match."""
    samples: list[int] = []
    for row in range(block.sample_from, len(block.tokens)):
        samples.append(sample_row(row))
        if row + 1 < len(block.tokens) and block.tokens[row + 1] != samples[-1]:
            break
    return tuple(samples)


def check_block(block: Block, kept: int, vocab_size: int, max_length: int) -> None:
    """Raise `InvalidRequest` unless `block` can run on a slot that holds `kept` positions."""
    if not block.tokens:
        raise InvalidRequest("a block without tokens cannot run; leave the session out of the step")
    if not 0 <= block.start <= kept:
        raise InvalidRequest(f"block starts at {block.start} but its slot holds {kept} positions; run those before it")
    if len(block.prefix) < block.start:
        raise InvalidRequest(
            f"block starts at {block.start} but brings {len(block.prefix)} prefix tokens; pass them all"
        )
    if block.end > max_length:
        raise InvalidRequest(f"position {block.end} is beyond the model's {max_length}; shorten the text or the draft")
    if not 0 <= block.sample_from <= len(block.tokens):
        raise InvalidRequest(f"sample_from {block.sample_from} lies outside the block's {len(block.tokens)} rows")
    bad = next((t for t in block.tokens if not 0 <= t < vocab_size), None)
    if bad is not None:
        raise InvalidRequest(f"token id {bad} is outside the vocabulary of {vocab_size}; check the tokenizer")
