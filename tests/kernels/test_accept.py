"""The walk on the device takes the path of `acespec.cloud.runner.walk`."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.runner import Block, Drawn, walk
from acespec.kernels.accept import accept, accept_reference
from acespec.proto.sampling_params import SamplingParams

RULE = DrawRule(SamplingParams(), seed=0, prompt_len=0)
UNTOUCHED = -9


def block(tokens: Sequence[int], parents: Sequence[int] = (), sample_from: int = 0) -> Block:
    return Block((), 0, tuple(tokens), (), sample_from, RULE, tuple(parents))


def walked(blocks: Sequence[Block], samples: Sequence[Sequence[int]], width: int, launch=accept) -> list[Drawn]:
    """`samples`: what each block's rows from `sample_from` on draw. Padded blocks are added and must stay empty."""
    table, parents, tokens, ids = [], [], [], []
    for one, drawn in zip(blocks, samples, strict=True):
        table.append((len(tokens), len(one.tokens), one.sample_from, len(ids)))
        parents += one.parents or range(-1, len(one.tokens) - 1)
        tokens += one.tokens
        ids += drawn
    table += [(0, 0, 0, 0)] * 2
    out_tokens, out_rows = (torch.full((len(table), width), UNTOUCHED, dtype=torch.int32) for _ in range(2))
    counts = torch.full((len(table),), UNTOUCHED, dtype=torch.int32)
    arrays = (torch.tensor(values, dtype=torch.int32) for values in (table, parents, tokens, ids or [0]))
    launch(*arrays, out_tokens, out_rows, counts)
    for row, count in enumerate(counts.tolist()):
        assert (out_tokens[row, count:] == UNTOUCHED).all()
        assert (out_rows[row, count:] == UNTOUCHED).all()
    assert counts[-2:].tolist() == [0, 0]
    return [
        Drawn(tuple(t[:n]), tuple(r[:n]))
        for t, r, n in zip(out_tokens.tolist(), out_rows.tolist(), counts.tolist()[:-2], strict=False)
    ]


def expected(blocks: Sequence[Block], samples: Sequence[Sequence[int]]) -> list[Drawn]:
    return [
        walk(one, lambda row, one=one, drawn=drawn: drawn[row - one.sample_from])
        for one, drawn in zip(blocks, samples, strict=True)
    ]


@st.composite
def any_block(draw: st.DrawFn) -> tuple[Block, list[int]]:
    """Few different tokens, so that paths are long and children of one row often say the same."""
    rows = draw(st.integers(1, 12))
    token = st.integers(0, 2)
    tokens = draw(st.lists(token, min_size=rows, max_size=rows))
    if draw(st.booleans()):
        parents = [-1, *(draw(st.integers(0, row - 1)) for row in range(1, rows))]
        one = block(tokens, parents)
    else:
        one = block(tokens, sample_from=draw(st.integers(0, rows)))
    sampled = rows - one.sample_from
    return one, draw(st.lists(token, min_size=sampled, max_size=sampled))


@settings(max_examples=60)
@given(st.lists(any_block(), min_size=1, max_size=4))
def test_any_blocks(given_blocks: list[tuple[Block, list[int]]]) -> None:
    blocks, samples = zip(*given_blocks, strict=True)
    right = expected(blocks, samples)
    assert walked(blocks, samples, 12) == right
    assert walked(blocks, samples, 12, accept_reference) == right


@pytest.mark.parametrize("rows", [1, 2, 127, 128, 129, 200])
def test_wide_blocks(rows: int) -> None:
    """Chains that are accepted whole, and trees whose matching child is the last row."""
    chain = block(range(rows))
    star = block([0, *[1] * (rows - 2), 2][:rows], [-1, *[0] * (rows - 1)])
    samples = [[*range(1, rows), 5], [2] * rows]
    right = expected([chain, star], samples)
    assert len(right[0].tokens) == rows
    assert len(right[1].tokens) == min(rows, 2)
    assert walked([chain, star], samples, rows) == right


def test_wide_random_trees() -> None:
    dice = random.Random(3)
    for rows in (64, 128):
        parents = [-1, *(dice.randrange(max(0, row - 4), row) for row in range(1, rows))]
        tree = block([dice.randrange(2) for _ in range(rows)], parents)
        samples = [[dice.randrange(2) for _ in range(rows)]]
        right = expected([tree], samples)
        assert walked([tree], samples, rows) == right


def test_a_prefill_chunk_samples_its_last_row_or_nothing() -> None:
    last, inner = block(range(100), sample_from=99), block(range(100), sample_from=100)
    assert walked([inner, last, inner], [[], [7], []], 4) == [Drawn((), ()), Drawn((7,), (99,)), Drawn((), ())]


def test_among_children_that_say_the_same_the_first_is_taken() -> None:
    tree = block([9, 4, 4, 5], [-1, 0, 0, 2])
    assert walked([tree], [[4, 6, 5, 5]], 4) == [Drawn((4, 6), (0, 1))]


def test_no_blocks() -> None:
    empty = torch.zeros(0, dtype=torch.int32)
    accept(empty.view(0, 4), empty, empty, empty, empty.view(0, 8), empty.view(0, 8), empty)
