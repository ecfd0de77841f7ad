"""Where rows of a pass stand: slots, tails, sampled rows, walks; and how a step is cut into passes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.cloud.cuda_backend.layout import PassLayout, drawn_on_host, lay_out
from acespec.cloud.cuda_backend.limits import BUCKETS, PassLimits, bucket
from acespec.cloud.cuda_backend.passes import cut
from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.runner import PAGE, Block
from acespec.kernels.attention_plan import row_slots
from acespec.proto.errors import InvalidRequest
from acespec.proto.sampling_params import SamplingParams

VOCAB = 300
GREEDY = DrawRule(SamplingParams(), 0, 0)
SPARE = 100 * PAGE


def block(
    start: int, rows: int, *, parents: Sequence[int] = (), sample_from: int = 0, rule: DrawRule = GREEDY
) -> Block:
    pages = tuple(range(7, -1, -1))
    return Block(pages, start, tuple(range(rows)), tuple(range(start)), sample_from, rule, tuple(parents))


def laid(*blocks: Block) -> PassLayout:
    return lay_out(blocks, SPARE, VOCAB)


def test_a_chain_lies_at_home_across_a_page_edge() -> None:
    layout = laid(block(PAGE - 2, 4))
    assert layout.slots.tolist() == [7 * PAGE + 62, 7 * PAGE + 63, 6 * PAGE, 6 * PAGE + 1]
    assert layout.positions.tolist() == [62, 63, 64, 65]
    assert layout.walks.tolist() == [[0, 4, 0, 0]]
    assert layout.parents.tolist() == [-1, 0, 1, 2]
    assert layout.gather.tolist() == [0, 1, 2, 3]
    assert layout.keep.tolist() == [-1] * 4


def test_siblings_get_spare_slots_and_the_first_children_lie_at_home() -> None:
    layout = laid(block(10, 4, parents=(-1, 0, 0, 1)), block(5, 3, parents=(-1, 0, 0)))
    first, second = layout.blocks
    assert first.order == [0, 2, 1, 3]
    assert first.slots == [7 * PAGE + 10, 7 * PAGE + 11, SPARE, 7 * PAGE + 12]
    assert second.slots == [7 * PAGE + 5, 7 * PAGE + 6, SPARE + 1], "spare slots are not handed out twice"
    assert first.moves([0, 2]) == [(SPARE, 7 * PAGE + 11)]
    assert first.moves([0, 1, 3]) == []


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    return [-1, *(draw(st.integers(0, row)) for row in range(draw(st.integers(0, 20))))]


@given(trees(), st.integers(0, 300))
def test_each_row_of_a_tree_sees_the_slots_of_its_own_path(parents: list[int], start: int) -> None:
    tree = block(start, len(parents), parents=parents)
    (layout,) = laid(tree).blocks
    assert len(set(layout.slots)) == len(parents), "each row has a slot of its own"
    seen = row_slots([layout.span()], PAGE)
    before = [tree.pages[p // PAGE] * PAGE + p % PAGE for p in range(start)]
    for place, row in enumerate(layout.order):
        assert seen[place] == before + [layout.slots[r] for r in tree.path(row)]


@given(st.lists(st.one_of(trees(), st.integers(1, 9)), min_size=1, max_size=5), st.data())
def test_sampled_rows_are_found_where_they_stand(shapes: list[list[int] | int], data: st.DataObject) -> None:
    blocks = []
    for shape in shapes:
        rows = shape if isinstance(shape, int) else len(shape)
        chain = isinstance(shape, int)
        sample_from = data.draw(st.integers(0, rows)) if chain else 0
        filters = data.draw(st.sampled_from([SamplingParams(), SamplingParams(temperature=1.0, top_p=0.9)]))
        rule = DrawRule(filters, 1, 0, top_logprobs=data.draw(st.sampled_from([None, 2])))
        blocks.append(block(3, rows, parents=() if chain else shape, sample_from=sample_from, rule=rule))
    layout = lay_out(blocks, SPARE, VOCAB)
    sampled = 0
    for laid_block, walk in zip(layout.blocks, layout.walks.tolist(), strict=True):
        first, rows, sample_from, at = walk
        own = laid_block.block
        assert (rows, sample_from, at) == (len(own.tokens), own.sample_from, sampled)
        assert tuple(layout.drafts[first : first + rows]) == own.tokens
        for row in range(sample_from, rows):
            place = int(layout.gather[sampled])
            assert laid_block.order[place - laid_block.first] == row
            rule, position = layout.rules[sampled]
            assert position == own.start + own.depths[row] + 1
            kept = rule.top_logprobs is not None or not rule.params.greedy
            assert (layout.keep[sampled] >= 0) == kept
            if kept:
                drawn_here = rule.top_logprobs is None
                assert layout.which[layout.keep[sampled]] == (sampled if drawn_here else -1)
            sampled += 1
    assert sampled == len(layout.gather)
    assert len(layout.which) == np.count_nonzero(layout.keep >= 0)


@pytest.mark.parametrize(
    ("rule", "on_host"),
    [
        (DrawRule(SamplingParams(temperature=0.7, top_k=5, top_p=0.5, min_p=0.1), 1, 0), False),
        (DrawRule(SamplingParams(repetition_penalty=1.1), 1, 0), True),
        (DrawRule(SamplingParams(presence_penalty=0.1), 1, 0), True),
        (DrawRule(SamplingParams(logit_bias=((3, 1.0),)), 1, 0), True),
        (DrawRule(SamplingParams(), 1, 0, top_logprobs=0), True),
        (DrawRule(SamplingParams(), 1, 0, banned=(2,), min_tokens=11), True),
        (DrawRule(SamplingParams(), 1, 0, banned=(2,), min_tokens=10), False),
    ],
)
def test_what_the_device_cannot_draw_the_host_does(rule: DrawRule, on_host: bool) -> None:
    assert drawn_on_host(rule, 10) is on_host


def test_top_k_beyond_the_vocabulary_is_no_filter() -> None:
    rule = DrawRule(SamplingParams(temperature=1.0, top_k=VOCAB), 0, 0)
    assert laid(block(0, 2, rule=rule)).keep.tolist() == [-1, -1]


@given(st.lists(st.integers(1, 128), min_size=1, max_size=12), st.data())
def test_passes_hold_all_blocks_in_order_and_no_more_than_fits(sizes: list[int], data: st.DataObject) -> None:
    limits = PassLimits()
    rules = st.sampled_from([GREEDY, DrawRule(SamplingParams(temperature=1.0, min_p=0.1), 0, 0)])
    blocks = [
        block(0, rows, sample_from=data.draw(st.sampled_from([0, rows - 1, rows])), rule=data.draw(rules))
        for rows in sizes
    ]
    parts = list(cut(blocks, limits, VOCAB))
    assert [own for part in parts for own in part] == blocks
    for part in parts:
        assert sum(len(own.tokens) for own in part) <= limits.rows
        assert sum(len(own.tokens) - own.sample_from for own in part if own.rule is not GREEDY) <= limits.kept


def test_a_block_that_fits_into_no_pass_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cut it into chunks"):
        list(cut([block(0, 257)], PassLimits(), VOCAB))
    with pytest.raises(InvalidRequest, match="stores 128"):
        list(cut([block(0, 129)], PassLimits(), VOCAB, keep_all=True))
    assert len(list(cut([block(0, 129)], PassLimits(), VOCAB))) == 1


def test_buckets_hold_what_they_are_asked_for() -> None:
    assert [bucket(rows) for rows in (0, 1, 8, 9, 64, 65, 256)] == [0, 8, 8, 16, 64, 128, 256]
    assert BUCKETS[-1] == PassLimits().rows
