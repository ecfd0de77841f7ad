"""The own-context index: real matches only, none missed, and exact rollback."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.drafters.own_context import LENGTH_CAP, SHORTEST, OwnContext
from acespec.proto.prefix import common_prefix

ids = st.lists(st.integers(0, 3), max_size=60)


def indexed(text: list[int]) -> OwnContext:
    own = OwnContext()
    for token in text:
        own.append(token)
    return own


def agreements(text: list[int], path: list[int]) -> dict[int, int]:
    """By brute force: for each token, the longest earlier context that agrees with the path's end."""
    longest: dict[int, int] = {}
    for at, token in enumerate(text):
        length = common_prefix(text[:at][::-1], path[::-1])
        if length >= SHORTEST:
            longest[token] = max(longest.get(token, 0), min(length, LENGTH_CAP))
    return longest


@given(ids, ids)
def test_every_match_is_real_and_none_is_missed(text: list[int], draft: list[int]) -> None:
    path = text + draft
    truth = agreements(text, path)
    found = indexed(text).matches(path, 4)
    assert len({m.token for m in found}) == len(found)
    assert bool(found) == bool(truth)
    for match in found:
        assert SHORTEST <= match.length <= truth[match.token]


@given(st.lists(st.integers(0, 30), max_size=60))
def test_with_few_occurrences_the_longest_match_comes_first(text: list[int]) -> None:
    truth = agreements(text, text)
    found = indexed(text).matches(text, 1)
    assert [m.length for m in found] == ([max(truth.values())] if truth else [])


def test_the_longest_match_wins_over_a_newer_one() -> None:
    text = [1, 2, 3, 4, 50, 9, 3, 4, 60, 1, 2, 3, 4]
    first, second = indexed(text).matches(text, 2)
    assert (first.token, first.length, first.contested) == (50, 4, False)
    assert (second.token, second.length) == (60, 2)


def test_the_newest_of_equal_matches_wins_and_both_are_contested() -> None:
    text = [1, 2, 7, 5, 1, 2, 8, 5, 6, 1, 2]
    assert [(m.token, m.contested) for m in indexed(text).matches(text, 2)] == [(8, True), (7, True)]


def test_a_draft_goes_on_copying_past_the_indexed_text() -> None:
    text = [1, 2, 3, 4, 5, 6, 1, 2]
    own, path = indexed(text), list(text)
    for _ in range(10):
        path.append(own.matches(path, 1)[0].token)
    assert path[len(text) :] == [3, 4, 5, 6, 1, 2, 3, 4, 5, 6]


@given(ids, st.integers(0, 60), ids, ids)
def test_after_truncation_the_index_is_as_if_built_from_scratch(
    text: list[int], keep: int, more: list[int], draft: list[int]
) -> None:
    own = indexed(text)
    own.truncate(keep)
    for token in more:
        own.append(token)
    fresh = indexed(text[:keep] + more)
    assert own.text == fresh.text
    assert own._newest == fresh._newest
    assert own._hidden == fresh._hidden
    assert own.matches(own.text + draft, 3) == fresh.matches(own.text + draft, 3)


@given(ids, ids)
def test_common_prefix(a: list[int], b: list[int]) -> None:
    count = common_prefix(a, b)
    assert a[:count] == b[:count]
    assert count == min(len(a), len(b)) or a[count] != b[count]
