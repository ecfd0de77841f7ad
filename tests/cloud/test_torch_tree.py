"""Trees: every row has the bits of its own path, and sampling any branch leaves that branch in the pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.runner import PAGE, Block, pages_for
from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.cloud.torch_backend.tree_order import segments
from acespec.proto.sampling_params import SamplingParams
from tests.cloud.torch_runners import (
    GREEDY,
    VOCAB,
    Logits,
    Pages,
    block,
    in_chunks,
    kv_of,
    one_at_a_time,
    poison,
    same_bits,
    table,
    text,
    tiny_runner,
)

MOST_ROWS = 24
MOST_DEPTH = 8
LENGTH = 200
GOLDEN = table(0)
PRIVATE = table(1)
FREE = range(16, 64)


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        ((-1,), [[0]]),
        ((-1, 0, 1, 2), [[0, 1, 2, 3]]),
        ((-1, 0, 0, 0), [[0, 3], [2], [1]]),
        ((-1, 0, 1, 0, 3, 1, 3), [[0, 3, 6], [4], [1, 5], [2]]),
    ],
)
def test_a_tree_is_visited_depth_first_and_first_children_last(
    parents: tuple[int, ...], expected: list[list[int]]
) -> None:
    assert segments(parents) == expected


@given(st.lists(st.integers(0, 99), max_size=40))
def test_segments_descend_and_end_in_the_main_chain(choices: list[int]) -> None:
    parents = [-1, *(choice % (row + 1) for row, choice in enumerate(choices))]
    cut = segments(parents)
    assert sorted(row for rows in cut for row in rows) == list(range(len(parents)))
    laid: dict[int, int] = {}
    depths = block((), 0, parents, parents=parents).depths
    for rows in cut:
        assert all(parents[b] == a for a, b in pairwise(rows))
        for row in rows:
            laid[depths[row]] = row
            assert depths[row] == 0 or laid[depths[row] - 1] == parents[row], "an ancestor is not in place"
    row, depth = 0, 0
    while row in parents:
        row, depth = parents.index(row), depth + 1
        assert laid[depth] == row
    assert len(cut) == len(set(range(len(parents))) - set(parents)), "one segment for each leaf"


@cache
def _runner() -> tuple[TorchRunner, list[int]]:
    """A runner that holds the golden text in `GOLDEN`, run one token at a time."""
    runner, tokens = tiny_runner("qwen2"), text(LENGTH)
    one_at_a_time(runner, tokens, pages=GOLDEN)
    return runner, tokens


@dataclass
class Reference:
    """Plain decoding behind the first `length` golden tokens."""

    length: int
    pages: Pages = field(init=False)

    def __post_init__(self) -> None:
        runner, tokens = _runner()
        whole = self.length // PAGE
        self.pages = (*GOLDEN[:whole], *PRIVATE)
        if self.length % PAGE:
            one_at_a_time(runner, tokens[: self.length], whole * PAGE, self.pages)

    def logits(self, path: list[int]) -> Logits:
        """Of each token of `path`, run one at a time."""
        return one_at_a_time(_runner()[0], [0] * self.length + path, self.length, self.pages)

    def greedy(self, path: list[int], count: int) -> list[int]:
        """The `count` tokens that the target draws after `path`."""
        drawn: list[int] = []
        while len(drawn) < count:
            drawn.append(int(self.logits(path + drawn)[-1, :VOCAB].argmax()))
        return drawn


@st.composite
def _trees(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """(tokens, parents) of a tree of any shape."""
    parents, depths = [-1], [0]
    for _ in range(draw(st.integers(1, MOST_ROWS - 1))):
        inner = [row for row, depth in enumerate(depths) if depth < MOST_DEPTH]
        parent = inner[draw(st.integers(0, 2 * len(inner))) % len(inner) if draw(st.booleans()) else -1]
        parents.append(parent)
        depths.append(depths[parent] + 1)
    return draw(st.lists(st.integers(0, VOCAB - 1), min_size=len(parents), max_size=len(parents))), parents


def _paths(tokens: list[int], parents: list[int]) -> list[list[int]]:
    """Rows from the root to each leaf."""
    tree = block((), 0, tokens, parents=parents)
    return [tree.path(row) for row in range(len(tokens)) if row not in parents]


def _prepared(data: st.DataObject, start: int, free: list[int]) -> Pages:
    """A page table that holds the golden text up to `start`: its prefix shared or not, the rest run in chunks."""
    runner, tokens = _runner()
    shared = data.draw(st.integers(0, start // PAGE), "shared pages")
    own = tuple(free.pop(0) for _ in range(pages_for(start + MOST_DEPTH + 10) - shared))
    pages = (*GOLDEN[:shared], *own)
    poison(runner, pages, shared * PAGE)
    sizes = data.draw(st.lists(st.integers(1, 100), min_size=1, max_size=4), "chunks")
    if start > shared * PAGE:
        in_chunks(runner, tokens[:start], sizes, shared * PAGE, pages)
    return pages


def _left_behind(data: st.DataObject, pages: Pages, start: int) -> None:
    """What earlier steps may have left beyond `start`: rejected drafts, NaN, or both."""
    if data.draw(st.booleans(), "rejected"):
        tokens, parents = data.draw(_trees(), "rejected tree")
        _runner()[0].logits([block(pages, start, tokens, parents=parents)])
    if data.draw(st.booleans(), "poison"):
        poison(_runner()[0], pages, start)


@settings(max_examples=20)
@given(st.data())
def test_any_tree_gives_the_bits_of_its_paths_and_any_branch_can_be_gone_on_from(data: st.DataObject) -> None:
    _try_a_tree(data)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_many_trees(data: st.DataObject) -> None:
    _try_a_tree(data)


def _try_a_tree(data: st.DataObject) -> None:
    runner, _ = _runner()
    golden = kv_of(runner, GOLDEN, LENGTH)
    near_edge = st.sampled_from([PAGE - 3, PAGE - 1, PAGE, 2 * PAGE - 4, 2 * PAGE])
    start = data.draw(near_edge | st.integers(0, LENGTH - 30), "start")
    scattered = data.draw(st.booleans(), "scattered")
    free = data.draw(st.permutations(FREE), "free pages") if scattered else list(FREE)
    pages, mate_pages = _prepared(data, start, free), _prepared(data, start, free)
    reference = Reference(start)

    tokens, parents = data.draw(_trees(), "tree")
    favoured = data.draw(st.sampled_from(_paths(tokens, parents)), "favoured")
    for row, token in zip(favoured[1:], reference.greedy([tokens[0]], len(favoured) - 1), strict=True):
        # A sibling that says the same, sent first, would be the one that is walked.
        same = [r for r, parent in enumerate(parents) if parent == parents[row] and tokens[r] == token]
        for other in same:
            tokens[other] = (token + 1) % VOCAB
        tokens[row] = token
    mate_tokens, mate_parents = data.draw(_trees(), "mate")
    mate = block(mate_pages, start, mate_tokens, parents=mate_parents)
    tree = block(pages, start, tokens, parents=parents)
    _left_behind(data, pages, start)
    _left_behind(data, mate_pages, start)

    order = data.draw(st.permutations([0, 1]), "order")
    by_block = dict(zip(order, runner.logits([[tree, mate][n] for n in order]), strict=True))
    for n, one in enumerate((tree, mate)):
        for path in _paths(list(one.tokens), list(one.parents)):
            assert same_bits(by_block[n][path], reference.logits([one.tokens[row] for row in path])), path

    _left_behind(data, pages, start)
    (drawn,) = runner.step([tree])
    path = [tokens[row] for row in drawn.rows]
    assert list(drawn.tokens) == reference.greedy([tokens[0]], len(path))
    assert path == [tokens[0], *drawn.tokens[:-1]]
    assert len(path) >= len(favoured)
    after = [drawn.tokens[-1], *text(3, seed=start)]
    (rows,) = runner.logits([block(pages, start + len(path), after)])
    assert same_bits(rows, reference.logits(path + after)[-len(after) :]), "the sampled path is not in the pages"
    assert same_bits(kv_of(runner, GOLDEN, LENGTH), golden), "a shared page was written"


def test_a_tree_of_one_chain_is_that_chain() -> None:
    runner = tiny_runner()
    tokens = text(90)
    plain = one_at_a_time(runner, tokens)
    runner.logits([block(table(2), 0, tokens[:60], 60)])
    (rows,) = runner.logits([block(table(2), 60, tokens[60:], parents=range(-1, 29))])
    assert same_bits(rows, plain[60:])
    assert same_bits(kv_of(runner, table(2), 90), kv_of(runner, table(31), 90))


def test_undrawn_trees_leave_the_main_chain() -> None:
    runner = tiny_runner()
    tokens = text(70)
    one_at_a_time(runner, tokens)
    runner.logits([block(table(2), 0, tokens[:60], 60)])
    rows, parents = [tokens[60]], [-1]
    for depth, token in enumerate(tokens[61:]):
        rows += [token, 5, 6]
        parents += [3 * depth - 2 if depth else 0, 3 * depth, 3 * depth]
    runner.logits([block(table(2), 60, rows, parents=parents)])
    assert same_bits(kv_of(runner, table(2), 70), kv_of(runner, table(31), 70))


class EvenAfterOdd:
    """A grammar that reads the prefix: after an odd number of tokens only even ids may follow, and the reverse."""

    def allowed(self, generated: Sequence[int]) -> NDArray[np.bool_]:
        even: NDArray[np.bool_] = (np.arange(VOCAB) + len(generated)) % 2 == 0
        return even


PENALISED = SamplingParams(temperature=1.0, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2)
RULES = [
    DrawRule(GREEDY, 0, 20),
    DrawRule(SamplingParams(temperature=0.8, top_p=0.9), 2**64 - 1, 20, top_logprobs=3),
    DrawRule(PENALISED, 7, 20, banned=tuple(range(0, VOCAB, 3)), min_tokens=9, top_logprobs=0),
    DrawRule(SamplingParams(temperature=1.0), 3, 20, constraint=EvenAfterOdd()),
]


@pytest.mark.parametrize("rule", RULES)
def test_trees_draw_what_plain_decoding_draws(rule: DrawRule) -> None:
    """Right tokens among wrong siblings, at several depths: same ids, same log probabilities."""
    runner = tiny_runner("qwen3")
    tokens = text(20)
    runner.step([block(table(2), 0, tokens[:19], 19)])
    plain = []
    while len(tokens) < 50:
        plain += runner.step([block(table(2), len(tokens) - 1, tokens[-1:], prefix=tokens, rule=rule)])
        tokens += plain[-1].tokens
    runner.step([block(table(3), 0, tokens[:19], 19)])
    at = 19
    while at < 44:
        (drawn,) = runner.step([_with_siblings(table(3), at, tokens, 1 + at % 4, rule)])
        assert drawn.tokens == tuple(tokens[at + 1 : at + 1 + len(drawn.tokens)])
        assert len(drawn.tokens) == 2 + at % 4
        steps = plain[at - 19 : at - 19 + len(drawn.tokens)]
        assert drawn.logprobs == tuple(item for step in steps for item in step.logprobs)
        assert bool(drawn.logprobs) == (rule.top_logprobs is not None)
        at += len(drawn.tokens)


def _with_siblings(pages: Pages, at: int, tokens: list[int], depth: int, rule: DrawRule) -> Block:
    """Row 0, then the true next tokens, each behind a wrong first sibling that has a child of its own."""
    rows, parents, last = [tokens[at]], [-1], 0
    for true in tokens[at + 1 : at + 1 + depth]:
        first = len(rows)
        rows += [(true + 1) % VOCAB, true, true]
        parents += [last, first, last]
        last = first + 2
    return block(pages, at, rows, prefix=tokens, rule=rule, parents=parents)
