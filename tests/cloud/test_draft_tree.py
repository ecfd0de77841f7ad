from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.cloud.draft_tree import DraftTree
from acespec.proto.errors import BadFrame
from acespec.proto.nodes import ROOT, Node


def tree_over(committed: list[int], max_pending: int = 64) -> DraftTree:
    return DraftTree(committed, max_pending)


def test_a_chain_from_the_tip_is_offered_and_matched() -> None:
    committed = [1, 2, 3]
    tree = tree_over(committed)
    tree.add(0, [Node(ROOT, 7), Node(0, 8), Node(1, 9)], base=3)
    assert tree.chain(16) == [7, 8, 9]
    assert tree.chain(2) == [7, 8]
    committed += [7, 8]
    tree.advance()
    assert tree.last_matched == (1, 4)
    assert tree.chain(16) == [9]


def test_a_contradiction_drops_the_subtree_and_nothing_else() -> None:
    committed = [1]
    tree = tree_over(committed)
    tree.add(0, [Node(ROOT, 5), Node(0, 6), Node(ROOT, 9), Node(2, 4)], base=1)
    committed.append(9)
    tree.advance()
    assert tree.chain(16) == [4]
    assert len(tree) == 1
    assert tree.last_matched == (2, 1)


def test_drafts_that_come_late_are_walked_and_grafted() -> None:
    committed = [1, 2, 3, 4]
    tree = tree_over(committed)
    tree.add(0, [Node(ROOT, 3), Node(0, 4), Node(1, 5), Node(2, 6)], base=2)
    assert tree.last_matched == (1, 3)
    assert tree.chain(16) == [5, 6]
    tree.add(4, [Node(ROOT, 9), Node(4, 5)], base=2)
    assert tree.chain(16) == [5, 6], "the late draft that contradicts position 2 must be gone"
    assert len(tree) == 2


def test_a_chain_goes_on_across_messages_under_a_matched_parent() -> None:
    committed = [1]
    tree = tree_over(committed)
    tree.add(0, [Node(ROOT, 2)], base=1)
    committed.append(2)
    tree.advance()
    tree.add(1, [Node(0, 3), Node(1, 4)], base=1)
    assert tree.chain(16) == [3, 4]


def test_a_child_of_a_dead_node_is_dead() -> None:
    committed = [1]
    tree = tree_over(committed)
    tree.add(0, [Node(ROOT, 2)], base=1)
    committed.append(3)
    tree.advance()
    tree.add(1, [Node(0, 4)], base=1)
    assert tree.chain(16) == []
    assert len(tree) == 0
    assert tree.received == 2


def test_a_base_beyond_the_tip_is_refused() -> None:
    with pytest.raises(BadFrame, match="beyond"):
        tree_over([1, 2]).add(0, [Node(ROOT, 1)], base=3)


def test_pending_nodes_are_bounded() -> None:
    tree = tree_over([1], max_pending=8)
    for i in range(100):
        tree.add(i, [Node(ROOT, i % 50)], base=1)
    assert len(tree) == 8


@given(st.integers(0, 2**32), st.integers(2, 4))
def test_the_tree_agrees_with_a_naive_replay(seed: int, vocab: int) -> None:
    """Pending paths and the deepest match are what a full re-walk of every node ever sent would give."""
    rng = random.Random(seed)
    committed = [rng.randrange(vocab) for _ in range(3)]
    tree = tree_over(committed, max_pending=10_000)
    paths: list[tuple[int, ...] | None] = []  # absolute token path of each node, as (base prefix, tokens)
    for _ in range(rng.randrange(1, 25)):
        if rng.random() < 0.4:
            committed += [rng.randrange(vocab) for _ in range(rng.randrange(1, 4))]
            tree.advance()
            continue
        first, base = len(paths), rng.randrange(max(0, len(committed) - 3), len(committed) + 1)
        sent = []
        for node_id in range(first, first + rng.randrange(1, 5)):
            parent = rng.choice([ROOT, *range(node_id)]) if node_id else ROOT
            token = rng.randrange(vocab)
            sent.append(Node(parent, token))
            prefix = tuple(committed[:base]) if parent == ROOT else paths[parent]
            paths.append(None if prefix is None else (*prefix, token))
        tree.add(first, sent, base)
        # A node dies for good when it is contradicted; its later children die with it.
        for i, path in enumerate(paths):
            if path is not None and path[: len(committed)] != tuple(committed)[: len(path)]:
                paths[i] = None
    alive = [p for p in paths if p is not None and p[: len(committed)] == tuple(committed)[: len(p)]]
    pending = [p for p in alive if len(p) > len(committed)]
    assert len(tree) == len(pending)
    chain = tuple(tree.chain(100))
    assert not chain or (*committed, *chain) in pending
    assert bool(chain) == bool(pending)
    matched = max((len(p) - 1 for p in alive if len(p) <= len(committed)), default=None)
    assert (tree.last_matched[1] if tree.last_matched else None) == matched
