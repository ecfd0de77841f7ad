"""The orders that the draft tree keeps, against sorting all of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.brain.draft_tree import DraftTree
from acespec.edge.brain.frontier import Frontier
from acespec.edge.brain.ranking import Ranking
from acespec.edge.brain.remembered import Remembered
from acespec.edge.brain.survival import Guess
from acespec.proto.nodes import ROOT

SURVIVALS = st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0])


@given(st.lists(SURVIVALS, max_size=30), st.data())
def test_a_ranking_is_sorted_whatever_comes_and_goes(survivals: list[float], data: st.DataObject) -> None:
    ranking, held = Ranking(), dict(enumerate(survivals))
    for key in data.draw(st.permutations(list(held))):
        ranking.add(held[key], key)
    for key in data.draw(st.lists(st.sampled_from(sorted(held)), unique=True)) if held else []:
        ranking.remove(held.pop(key), key)
    assert list(ranking) == sorted(held, key=lambda key: (-held[key], key))
    assert list(reversed(ranking)) == list(ranking)[::-1]
    assert len(ranking) == len(held)


def test_a_frontier_passes_over_what_is_not_open_any_more() -> None:
    frontier = Frontier()
    for key, survival in enumerate((0.5, 0.9, 0.7)):
        frontier.add(survival, key)
    assert frontier.best(lambda _: True) == ROOT
    assert frontier.best(lambda key: key in (0, 2)) == 2
    assert frontier.best(lambda _: False) is None
    frontier.refill([(0.2, 7), (0.3, 8)])
    assert frontier.best(lambda _: True) == 8


def test_an_answer_holds_until_the_state_changes() -> None:
    asked: list[int] = []

    def ask() -> int:
        asked.append(0)
        return len(asked)

    remembered = Remembered(ask)
    assert [remembered.answer(state) for state in ((1, 2.0), (1, 2.0), (2, 2.0), (1, 2.0))] == [1, 1, 2, 3]


def test_none_is_an_answer_and_a_state() -> None:
    asked: list[None] = []
    remembered = Remembered(lambda: asked.append(None))
    assert remembered.answer(None) is remembered.answer(None) is None
    assert len(asked) == 1


@given(st.data())
def test_the_tree_gives_what_is_not_shipped_in_order_and_drops_from_its_end(data: st.DataObject) -> None:
    tree, held, ids, shipped = DraftTree(), set[int](), list[int](), 0
    for _ in range(data.draw(st.integers(1, 30))):
        match data.draw(st.sampled_from(("add", "add", "add", "ship", "commit", "unship", "room"))):
            case "add":
                parent = data.draw(st.sampled_from([ROOT, *sorted(held)]))
                guess = Guess("lm", tree.depth(parent) + 1, 0.5, len(tree.children(parent)))
                token = data.draw(st.integers(0, 3))
                if tree.child(parent, token) is None:
                    held.add(tree.add(parent, token, guess, data.draw(SURVIVALS)))
            case "ship":
                keys = [key for key, _ in tree.unshipped()][: data.draw(st.integers(0, 3))]
                tree.ship(shipped, keys)
                shipped += len(keys)
            case "unship":
                tree.unship()
            case "commit":
                ids = ids + data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=2))
                tree.commit(ids)
            case "room":
                leaves = [k for k, _ in tree.unshipped() if not tree.children(k)]
                worst = min(sorted(leaves), key=tree.survival, default=None)
                made = tree.make_room(len(held), 2.0) if held else True
                assert made is (worst is not None or not held)
                assert worst is None or worst not in tree
        held = {key for key in held if key in tree}
        fresh = [key for key in held if tree.node(key).wire_id is None]
        assert [key for key, _ in tree.unshipped()] == sorted(fresh, key=lambda key: (-tree.survival(key), key))
        assert tree.has_unshipped() is bool(fresh)
        assert tree.deepest() == max(map(tree.depth, held), default=0)
        assert all(tree.survival(key) <= tree.survival(tree.node(key).parent) for key in held)
