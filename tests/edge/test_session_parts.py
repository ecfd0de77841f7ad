"""The session's parts by themselves: draft tree, committed sequence, wire statistics, stop text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.draft_tree import DraftTree, Outcome
from acespec.edge.sequence import CommittedSequence
from acespec.edge.stop_text import StopText
from acespec.edge.wire_stats import WireStats
from acespec.proto.framing import message_bytes
from acespec.proto.nodes import ROOT, Node
from acespec.proto.prefix import common_prefix


def chain(*tokens: int, start: int = 0) -> DraftTree:
    tree = DraftTree()
    for position, token in enumerate(tokens, start):
        tree.add(token, position, 0.5, 0.5)
    return tree


def test_a_chain_is_shipped_once_and_in_order() -> None:
    tree = chain(7, 8)
    assert tree.ship(0, 10) == [Node(ROOT, 7), Node(0, 8)]
    tree.add(9, 2, 0.5, 0.5)
    assert tree.has_unshipped()
    assert tree.ship(2, 10) == [Node(1, 9)]
    assert not tree.has_unshipped()
    assert tree.tokens_to(2) == [7, 8, 9]


def test_shipping_respects_the_limit() -> None:
    tree = chain(7, 8, 9)
    assert len(tree.ship(0, 2)) == 2
    assert tree.ship(2, 2) == [Node(1, 9)]


def test_what_commits_pass_leaves_and_what_follows_stays() -> None:
    tree = chain(7, 8, 9)
    tree.ship(0, 10)
    outcomes, contradicted = tree.commit([7, 8])
    assert outcomes == [Outcome(1, 0.5, True), Outcome(2, 0.5, True)]
    assert not contradicted
    assert tree.tokens_to(2) == [9]
    with pytest.raises(KeyError):
        tree.tokens_to(1)
    assert tree.survival() == 0.5


def test_what_commits_contradict_goes_with_its_subtree() -> None:
    tree = chain(7, 8, 9)
    outcomes, contradicted = tree.commit([7, 1])
    assert outcomes == [Outcome(1, 0.5, True), Outcome(2, 0.5, False)]
    assert contradicted
    assert len(tree) == 0
    assert tree.tip is None


def test_a_node_whose_shipped_parent_was_passed_becomes_a_root() -> None:
    tree = chain(7, 8)
    tree.ship(0, 1)
    tree.commit([7])
    assert tree.ship(1, 10) == [Node(ROOT, 8)]


def test_a_new_epoch_ships_again() -> None:
    tree = chain(7, 8)
    tree.ship(0, 10)
    tree.unship()
    assert tree.ship(0, 10) == [Node(ROOT, 7), Node(0, 8)]


def test_a_tree_can_be_cut_short() -> None:
    tree = chain(7, 8, 9)
    tree.ship(0, 10)
    assert tree.cut(2)
    assert [node.token for node in tree.path()] == [7, 8]
    assert not tree.cut(2)


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_replacing_a_sequence_equals_building_it(a: list[int], b: list[int]) -> None:
    grown, fresh = CommittedSequence(), CommittedSequence()
    grown.extend(a)
    assert grown.replace(b) == common_prefix(a, b)
    fresh.extend(b)
    assert grown.ids == b
    assert grown.check() == fresh.check()


def test_checkpoints_are_ascending_and_never_empty() -> None:
    sequence = CommittedSequence()
    sequence.extend([1, 2, 3])
    assert [c.length for c in sequence.checkpoints((3, 0, 2, 3))] == [2, 3]


def test_answers_within_40_ms_carry_the_acknowledgement() -> None:
    stats = WireStats()
    stats.sent(0.0, 20)
    stats.received(0.03, 10)
    stats.sent(0.05, 20)
    totals = stats.totals(0.051)
    assert totals.up_bytes == 2 * message_bytes(20)
    assert totals.down_bytes == message_bytes(10)
    assert (totals.up_payload_bytes, totals.down_payload_bytes) == (40, 10)


def test_a_late_answer_costs_a_bare_acknowledgement() -> None:
    stats = WireStats()
    stats.sent(0.0, 20)
    stats.received(0.1, 10)
    totals = stats.totals(1.0)
    assert totals.up_bytes == message_bytes(20) + 52
    assert totals.down_bytes == message_bytes(10) + 52


def test_a_burst_is_acknowledged_in_pairs() -> None:
    stats = WireStats()
    for i in range(4):
        stats.received(i * 0.001, 10)
    assert stats.totals(0.01).up_bytes == 2 * 52
    assert stats.totals(1.0).up_bytes == 2 * 52


def test_tls_costs_a_record_a_frame_and_differences_subtract() -> None:
    stats = WireStats(tls=True)
    stats.sent(0.0, 20)
    before = stats.totals(0.0)
    stats.sent(0.0, 30)
    later = stats.totals(0.0) - before
    assert later.up_bytes == message_bytes(30, tls=True)
    assert later.up_messages == 1


TEXT = st.text(alphabet="abé", max_size=30)


@given(TEXT, st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=3), st.data())
def test_no_text_behind_a_stop_is_ever_shown_and_none_before_it_is_lost(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    """The cloud commits up to the token in which the first stop completes, and says where the text ends."""
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    end = min(ends, default=None)
    seen = text if end is None else text[: end[0] + data.draw(st.integers(0, 3))]
    answer = text if end is None else text[: min(at for done, at in ends if done == end[0])]
    stream = StopText(stops)
    shown = ""
    rest = seen
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        shown += stream.push(rest[:cut])
        rest = rest[cut:]
        assert answer.startswith(shown)
    shown += stream.finish("", None if end is None else len(answer.encode()))
    assert shown == answer


def test_text_without_stops_is_shown_at_once() -> None:
    stream = StopText(())
    assert stream.push("abc") == "abc"
    assert stream.finish("d", None) == "d"


def test_only_a_possible_beginning_is_withheld() -> None:
    stream = StopText(("STOP",))
    assert stream.push("go ST") == "go "
    assert stream.push("AY ") == "STAY "
    assert stream.push("STO") == ""
    assert stream.finish("", None) == "STO"


@given(
    TEXT,
    st.lists(st.text(alphabet="abé", min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(0, 12),
    st.data(),
)
def test_a_stop_string_that_is_complete_too_early_withholds_nothing(
    text: str, stops: list[str], early: int, data: st.DataObject
) -> None:
    """The first `early` characters are those of the first `min_tokens` tokens."""
    ends = [
        (at + len(s), at) for s in stops for at in range(len(text)) if text.startswith(s, at) and at + len(s) > early
    ]
    end = min(ends, default=None)
    seen = text if end is None else text[: end[0] + data.draw(st.integers(0, 3))]
    answer = text if end is None else text[: min(at for done, at in ends if done == end[0])]
    stream = StopText(stops)
    shown = stream.push(seen[:early], may_end=False)
    rest = seen[early:]
    while rest:
        assert answer.startswith(shown)
        assert end is not None or len(seen) - len(rest) - len(shown) < max(map(len, stops)), "held back for no reason"
        cut = data.draw(st.integers(1, len(rest)))
        shown += stream.push(rest[:cut])
        rest = rest[cut:]
    shown += stream.finish("", None if end is None else len(answer.encode()))
    assert shown == answer
