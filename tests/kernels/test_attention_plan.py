"""The plan covers each row's splits once, in order, whatever the blocks, the lead and the room."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.kernels.attention_plan import PACKED, AttentionPlan, Segment, Span, group_pad, plan_attention, row_slots
from acespec.proto.errors import Exhausted

SPLIT, PAGE = 128, 64


def chain(start: int, rows: int, row: int = 0, pages: tuple[int, ...] | None = None) -> Span:
    pages = pages or tuple(range(10, 10 + -(-(start + rows) // PAGE)))
    tail = tuple(pages[p // PAGE] * PAGE + p % PAGE for p in range(start, start + rows))
    return Span(pages, start, row, rows, (Segment(row, rows, start, tail),))


def comb(start: int, stem: int, teeth: int, row: int = 0) -> Span:
    """A stem of `stem` rows, and `teeth` branches of two rows behind its last."""
    trunk = chain(start, stem, row)
    tail = trunk.segments[0].tail
    branches = tuple(
        Segment(row + stem + 2 * i, 2, start + stem, (*tail, 9000 + 2 * i, 9001 + 2 * i)) for i in range(teeth)
    )
    return Span(trunk.pages, start, row, stem + 2 * teeth, (*trunk.segments, *branches))


@st.composite
def steps(draw: st.DrawFn) -> list[Span]:
    spans: list[Span] = []
    row = 0
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, 5 * SPLIT))
        if draw(st.booleans()):
            spans.append(chain(start, draw(st.integers(1, 70)), row))
        else:
            spans.append(comb(start, draw(st.integers(1, 20)), draw(st.integers(1, 5)), row))
        row += spans[-1].rows
    return spans


def partials(plan: AttentionPlan) -> dict[int, dict[int, list[int]]]:
    """For each row: which splits each of its partials covers, as the kernel would write them."""
    found: dict[int, dict[int, list[int]]] = {}
    for tile, first, last, nth in plan.items.tolist():
        row0, rows = plan.tiles[tile, :2].tolist()
        for row in range(row0, row0 + rows):
            own = plan.positions[row] // SPLIT
            if own >= first:
                here = found.setdefault(row, {})
                assert nth not in here
                here[nth] = list(range(first, min(last, own + 1)))
    return found


@given(steps(), st.integers(1, 9), st.integers(1, 12), st.integers(0, 9))
def test_each_split_of_a_row_once_ascending_and_one_a_partial_behind_the_first(
    spans: list[Span], group: int, lead: int, pad: int
) -> None:
    rows = sum(span.rows for span in spans)
    plan = plan_attention(spans, group=group, page=PAGE, rows=rows + pad, split=SPLIT, lead=lead)
    found = partials(plan)
    assert sorted(found) == list(range(rows))
    for row, covered in found.items():
        assert sorted(covered) == list(range(plan.row_parts[row]))
        assert [s for nth in sorted(covered) for s in covered[nth]] == list(range(plan.positions[row] // SPLIT + 1))
        assert all(len(splits) == 1 for nth, splits in covered.items() if nth)
    assert plan.row_parts[rows:].tolist() == [0] * pad
    places = [plan.row_base[row] + nth for row, covered in found.items() for nth in covered]
    assert sorted(places) == list(range(plan.n_parts))
    assert plan.n_items <= plan.n_parts
    assert len(plan.tiles) <= plan.n_items or not spans
    assert (plan.tiles[:, 1] <= PACKED // group_pad(group)).all()


@given(steps())
def test_tables_and_tails_lead_to_each_rows_slots(spans: list[Span]) -> None:
    plan = plan_attention(spans, group=4, page=PAGE, split=SPLIT)
    slots = row_slots(spans, PAGE)
    for row0, rows, table, start, tail, end, first, _ in plan.tiles.tolist():
        last = row0 + rows - 1
        seen = [
            plan.tables[table, p // PAGE] + p % PAGE if p < start else plan.tails[tail, p - start] for p in range(end)
        ]
        assert end == plan.positions[last] + 1 or (first == 0 and end <= start)
        assert seen == slots[last][:end]


def test_positions_follow_segments() -> None:
    plan = plan_attention([comb(300, 3, 2)], group=1, page=PAGE, rows=9)
    assert plan.positions.tolist() == [300, 301, 302, 303, 304, 303, 304, 0, 0]


def test_splits_before_the_start_are_read_once_for_all_branches() -> None:
    plan = plan_attention([comb(3 * SPLIT + 5, 2, 7)], group=4, page=PAGE, split=SPLIT, lead=1)
    visits = [first for _, first, _, _ in plan.items.tolist()]
    assert [visits.count(s) for s in range(4)] == [1, 1, 1, 8]


def test_one_long_context_is_spread_and_many_leave_one_partial_each() -> None:
    long = plan_attention([chain(8191, 1)], group=4, page=PAGE, split=256, kv_heads=8)
    assert long.n_items == 32
    crowd = [chain(1000, 5, 5 * i) for i in range(600)]
    plan = plan_attention(crowd, group=4, page=PAGE, split=256, kv_heads=8)
    assert plan.n_items == 600
    assert plan.n_parts == 3000


def test_the_longest_items_stand_first() -> None:
    plan = plan_attention([chain(3 * SPLIT, 1), chain(9 * SPLIT, 1, 1)], group=4, page=PAGE, split=SPLIT, lead=5)
    lengths = (plan.items[:, 2] - plan.items[:, 1]).tolist()
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[:2] == [5, 4]


def test_partials_stay_within_the_room_or_there_is_an_error() -> None:
    spans = [chain(20 * SPLIT, 128), chain(90 * SPLIT, 3, 128)]
    tight = plan_attention(spans, group=4, page=PAGE, split=SPLIT, lead=1, max_parts=131)
    assert tight.n_parts == 131
    assert plan_attention(spans, group=4, page=PAGE, split=SPLIT, lead=1, max_parts=600).n_parts <= 600
    with pytest.raises(Exhausted, match="131 attention partials"):
        plan_attention(spans, group=4, page=PAGE, split=SPLIT, max_parts=130)


@given(st.integers(1, 300), st.integers(1, 30), st.integers(1, 6))
def test_three_partials_a_row_suffice_for_shallow_trees(start: int, stem: int, teeth: int) -> None:
    span = comb(start * 7, stem, teeth)
    assert plan_attention([span], group=4, page=PAGE, split=SPLIT, max_parts=3 * span.rows).n_parts <= 3 * span.rows


def test_no_blocks_give_lists_of_the_right_shape() -> None:
    plan = plan_attention([], group=4, page=PAGE, rows=4)
    assert plan.items.shape == (0, 4)
    assert plan.tiles.shape == (0, 8)
    assert plan.row_parts.tolist() == [0] * 4
    assert all(
        getattr(plan, name).dtype == np.int32 for name in ("items", "tiles", "tables", "tails", "positions", "row_base")
    )
