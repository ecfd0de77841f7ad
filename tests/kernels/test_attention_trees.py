"""Chain against tree: each path from root to leaf has the bits of the same path laid as a chain."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.attention_lab import ROOT, SPLIT, Session, Shape, chain, differing, laid, visiting_order

SMALL = Shape(1, 2)


@st.composite
def trees(draw: st.DrawFn) -> Session:
    rows = range(1, draw(st.integers(2, 9)))
    parents = [ROOT, *(draw(st.integers(max(0, row - 4), row - 1)) for row in rows)]
    start = draw(st.sampled_from([0, 1, 61, 64, SPLIT - 3, SPLIT - 1, SPLIT, 2 * SPLIT - 2]))
    return Session(start, tuple(parents), draw(st.integers(0, 99)))


def assert_paths_are_chains(tree: Session, shape: Shape = SMALL) -> None:
    out = laid(tree, shape=shape).run()
    step_row = {row: at for at, row in enumerate(visiting_order(tree.parents))}
    leaves = set(step_row) - set(tree.parents)
    paths = [tree.path(leaf) for leaf in sorted(leaves)]
    chains = laid(*(chain(tree.start, len(path), tree.seed, tuple(path)) for path in paths), shape=shape).run()
    for path in paths:
        mine, chains = chains[: len(path)], chains[len(path) :]
        assert differing(out[[step_row[row] for row in path]], mine) == 0


@settings(max_examples=6)
@given(trees())
def test_random_trees(tree: Session) -> None:
    assert_paths_are_chains(tree)


@pytest.mark.parametrize("group", [1, 5])
def test_a_bush_whose_branches_cross_a_split_edge(group: int) -> None:
    bush = (ROOT, 0, 0, 0, 1, 2, 3, 4, 5, 6)
    assert_paths_are_chains(Session(SPLIT - 2, bush), Shape(1, group))


def test_more_rows_than_a_tile_of_queries_takes() -> None:
    twins = (ROOT, 0, 0, *range(1, 9))
    assert_paths_are_chains(Session(2 * SPLIT - 5, twins), Shape(1, 8))
