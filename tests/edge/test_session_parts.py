"""The session's parts by themselves: draft tree, committed sequence, wire statistics, stop text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.brain.branch_cache import BranchCache
from acespec.edge.brain.draft_tree import DraftTree
from acespec.edge.brain.survival import Guess
from acespec.edge.sequence import CommittedSequence
from acespec.edge.stop_text import StopText
from acespec.edge.wire_stats import WireStats
from acespec.proto.framing import message_bytes
from acespec.proto.nodes import ROOT, Node
from acespec.proto.prefix import common_prefix


def chain(*tokens: int) -> DraftTree:
    tree = DraftTree()
    grow(tree, ROOT, *tokens)
    return tree


def grow(tree: DraftTree, parent: int, *tokens: int, given: float = 0.5) -> int:
    """Put a path of guesses behind `parent`; its last key."""
    for token in tokens:
        guess = Guess("lm", tree.depth(parent) + 1, given, len(tree.children(parent)))
        tree.asked(parent, silent=False)
        parent = tree.add(parent, token, guess, given)
    return parent


def ship_all(tree: DraftTree, first_id: int, limit: int = 99) -> list[Node]:
    return tree.ship(first_id, [key for key, _ in tree.unshipped()][:limit])


def test_a_chain_is_shipped_once_and_in_order() -> None:
    tree = chain(7, 8)
    assert ship_all(tree, 0) == [Node(ROOT, 7), Node(0, 8)]
    grow(tree, tree.main()[-1], 9)
    assert tree.has_unshipped()
    assert ship_all(tree, 2) == [Node(1, 9)]
    assert not tree.has_unshipped()
    assert tree.tokens_to(2) == [7, 8, 9]


def test_shipping_a_part_leaves_the_rest() -> None:
    tree = chain(7, 8, 9)
    assert len(ship_all(tree, 0, 2)) == 2
    assert ship_all(tree, 2, 2) == [Node(1, 9)]


def test_what_commits_pass_leaves_and_what_follows_stays() -> None:
    tree = chain(7, 8, 9)
    ship_all(tree, 0)
    assert [(o.guess.depth, o.predicted, o.right) for o in tree.commit([7, 8])] == [(1, 0.5, True), (2, 0.5, True)]
    assert tree.tokens_to(2) == [9]
    with pytest.raises(KeyError):
        tree.tokens_to(1)
    assert tree.survival(tree.main()[-1]) == 0.5
    assert tree.was_passed(1)


def test_what_commits_contradict_goes_with_its_subtree() -> None:
    tree = chain(7, 8, 9)
    assert [(o.guess.depth, o.right) for o in tree.commit([7, 1])] == [(1, True), (2, False)]
    assert len(tree) == 0
    assert tree.best(99) == ROOT
    assert tree.cache == BranchCache(surprises=1)


def test_a_node_whose_shipped_parent_was_passed_becomes_a_root() -> None:
    tree = chain(7, 8)
    ship_all(tree, 0, 1)
    tree.commit([7])
    assert ship_all(tree, 1) == [Node(ROOT, 8)]


def test_a_new_epoch_ships_again() -> None:
    tree = chain(7, 8)
    ship_all(tree, 0)
    tree.unship()
    assert ship_all(tree, 0) == [Node(ROOT, 7), Node(0, 8)]


def test_a_tree_can_be_cut_short() -> None:
    tree = chain(7, 8, 9)
    ship_all(tree, 0)
    assert tree.cut(2)
    assert tree.tokens(tree.main()[-1]) == [7, 8]
    assert not tree.cut(2)


def test_room_is_made_below_a_position_only() -> None:
    tree = chain(7, 8, 9, 10)
    side = grow(tree, ROOT, 5, given=0.2)
    assert tree.make_room(3, 0.5, end=2), "of the three nodes below the third position the unlikeliest went"
    assert side not in tree
    assert tree.tokens(tree.tip()) == [7, 8, 9, 10]
    assert not tree.make_room(2, 0.9, end=2), "what something follows is no leaf"


def test_who_has_been_asked_can_be_asked_again() -> None:
    tree = chain(7)
    tree.asked(tree.tip(), silent=True)
    assert not tree.is_open(tree.tip(), 99)
    tree.ask_again(tree.tip())
    assert tree.is_open(tree.tip(), 99)
    assert tree.best(99) == tree.tip()


def test_a_sibling_that_is_right_keeps_what_was_drafted_behind_it() -> None:
    tree = chain(7, 8)
    side = grow(tree, ROOT, 5, given=0.5)
    grow(tree, side, 4, 3)
    assert tree.survival(side) == 0.25
    assert [(o.guess.rank, o.right) for o in tree.commit([5])] == [(0, False), (1, True)]
    assert tree.tokens(tree.main()[-1]) == [4, 3]
    assert tree.survival(tree.main()[0]) == 0.5, "survival counts from the committed prefix"
    assert tree.cache == BranchCache(surprises=1, covered=1, shipped=0, saved=2)


def test_of_the_guesses_at_one_place_those_behind_the_right_one_teach_nothing() -> None:
    tree = chain(7)
    grow(tree, ROOT, 5)
    grow(tree, ROOT, 6)
    assert [(o.guess.rank, o.right) for o in tree.commit([7])] == [(0, True)]


def test_a_sibling_is_never_put_above_the_guess_before_it() -> None:
    tree = DraftTree()
    grow(tree, ROOT, 7, given=0.3)
    key = grow(tree, ROOT, 8, given=0.9)
    assert tree.survival(key) == 0.3
    assert tree.confidence(ROOT, 0.5) == pytest.approx(0.2)


def test_the_frontier_gives_the_likeliest_node_first() -> None:
    tree = DraftTree()
    assert tree.best(99) == ROOT
    main = grow(tree, ROOT, 7, given=0.6)
    side = grow(tree, ROOT, 8, given=0.9)
    assert tree.best(99) == main
    deeper = grow(tree, main, 9, given=0.5)
    assert tree.best(99) == side
    tree.asked(side, silent=True)
    assert tree.best(99) == deeper
    assert tree.best(2) is None, "nothing is drafted at the end or beyond"
    tree.commit([8])
    assert tree.best(99) == ROOT, "who was silent may know better now"


def test_the_unlikeliest_unshipped_leaf_makes_room() -> None:
    tree = chain(7, 8)
    side = grow(tree, ROOT, 5, given=0.2)
    assert side in tree
    assert not tree.make_room(3, 0.05)
    assert tree.make_room(3, 0.15)
    assert side not in tree
    ship_all(tree, 0)
    assert not tree.make_room(2, 0.9), "what was shipped can be named by a commit"


@given(st.data())
def test_any_tree_follows_any_commits(data: st.DataObject) -> None:
    """Whatever is drafted, shipped and committed, the tree holds exactly the guesses that agree with the text."""
    tree, model, ids = DraftTree(), {}, list[int]()
    shipped = 0
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(("add", "add", "add", "ship", "commit", "unship"))):
            case "add":
                parent = data.draw(st.sampled_from([ROOT, *model]))
                token = data.draw(st.integers(0, 2))
                if tree.child(parent, token) is None:
                    model[grow(tree, parent, token, given=data.draw(st.floats(0, 1)))] = (
                        *model.get(parent, ids),
                        token,
                    )
            case "ship":
                shipped += len(ship_all(tree, shipped, data.draw(st.integers(0, 4))))
            case "unship":
                tree.unship()
                shipped = 0
            case "commit":
                ids = ids + data.draw(st.lists(st.integers(0, 2), max_size=3))
                tree.commit(ids)
                model = {k: path for k, path in model.items() if len(path) > len(ids) and list(path[: len(ids)]) == ids}
        assert {k: (*ids, *tree.tokens(k)) for k in model} == model
        assert len(tree) == len(model)
        assert all(0.0 <= tree.survival(k) <= 1.0 for k in model)
        assert tree.deepest() == max((len(path) for path in model.values()), default=len(ids)) - len(ids)
        best = tree.best(10_000)
        fresh = [k for k in model if not tree.node(k).asked]
        assert best == ROOT or (best in fresh and tree.survival(best) == max(map(tree.survival, fresh))) or not fresh


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
