from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.cloud.prefix_cache import PrefixCache
from acespec.cloud.runner import PAGE
from acespec.proto.prefix import common_prefix


def text(letters: str, tail: tuple[int, ...] = ()) -> list[int]:
    """A page of each letter, then the tail."""
    return [ord(letter) for letter in letters for _ in range(PAGE)] + list(tail)


def put(cache: PrefixCache, tokens: list[int], table: list[int], salt: str = "") -> list[int]:
    """A session without any hit leaves `tokens`."""
    return cache.store(salt, [], tokens, table)


def evict_all(cache: PrefixCache) -> list[int]:
    return [cache.evict() for _ in range(cache.unused)]


def test_whole_pages_match_by_equality_only() -> None:
    cache = PrefixCache()
    assert put(cache, text("ab"), [10, 11]) == []
    almost = text("ab")
    almost[-1] += 1
    assert [n.page for n in cache.pin("", almost)] == [10]
    assert [n.page for n in cache.pin("", text("abc"))] == [10, 11]
    assert cache.pin("", text("b")) == []
    assert cache.pin("", text("a")[:-1]) == []


def test_an_equal_page_is_handed_back() -> None:
    cache = PrefixCache()
    put(cache, text("ab", (1, 2)), [10, 11, 12])
    assert put(cache, text("ac", (1,)), [20, 21, 22, 23]) == [20, 23]
    assert put(cache, text("ab", (1, 2)), [30, 31, 32]) == [30, 31, 32]
    assert cache.unused == 5


def test_a_pinned_path_cannot_be_evicted_and_comes_back_once_all_users_left() -> None:
    cache = PrefixCache()
    put(cache, text("ab"), [0, 1])
    put(cache, text("ac"), [9, 2])
    one, two = cache.pin("", text("ab")), cache.pin("", text("ab"))
    assert evict_all(cache) == [2]
    cache.store("", one, text("ab"), [0, 1])
    assert cache.unused == 0
    with pytest.raises(KeyError):
        cache.evict()
    cache.store("", two, text("ab"), [0, 1])
    assert evict_all(cache) == [1, 0]


def test_the_least_recently_used_goes_first_and_a_shared_parent_last() -> None:
    cache = PrefixCache()
    for letter, page in zip("xyz", (1, 2, 3), strict=True):
        put(cache, text("s" + letter), [0, page])
    cache.store("", cache.pin("", text("sx")), text("sx"), [0, 1])
    put(cache, text("q"), [4])
    assert evict_all(cache) == [2, 3, 1, 0, 4]


def test_a_parent_used_alone_outlives_what_is_older() -> None:
    cache = PrefixCache()
    put(cache, text("sx"), [0, 1])
    put(cache, text("q"), [2])
    cache.store("", cache.pin("", text("s")), text("s"), [0])
    assert evict_all(cache) == [1, 2, 0]


def test_finding_an_equal_on_the_way_out_counts_as_use() -> None:
    cache = PrefixCache()
    put(cache, text("a", (7,)), [0, 1])
    put(cache, text("b"), [2])
    put(cache, text("a", (7,)), [3, 4])
    assert evict_all(cache) == [2, 1, 0]


def test_a_tail_is_taken_once() -> None:
    cache = PrefixCache()
    put(cache, text("a", (1, 2, 3)), [0, 1])
    path = cache.pin("", text("a", (1, 2, 3, 4)))
    assert cache.take_tail("", path, [1, 2, 3, 4]) == (1, 3)
    assert cache.take_tail("", path, [1, 2, 3, 4]) is None
    assert cache.unused == 0


def test_a_tail_serves_as_far_as_it_agrees() -> None:
    cache = PrefixCache()
    put(cache, [1, 2, 3], [0])
    assert cache.take_tail("", [], [9, 1]) is None
    assert cache.take_tail("", [], []) is None
    assert cache.take_tail("", [], [1, 2, 9]) == (0, 2)


def test_of_tails_that_serve_alike_one_goes_that_loses_nothing() -> None:
    cache = PrefixCache()
    put(cache, [1, 2, 3, 4], [0])
    put(cache, [1, 2], [1])
    assert cache.take_tail("", [], [1, 2, 9]) == (1, 2)


def test_a_tail_belongs_to_its_path() -> None:
    cache = PrefixCache()
    put(cache, text("a", (1, 2)), [0, 1])
    assert cache.take_tail("", [], [1, 2]) is None
    put(cache, text("b"), [2])
    assert cache.take_tail("", cache.pin("", text("b")), [1, 2]) is None


tails = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), max_size=12)


@settings(max_examples=200, deadline=None)
@given(tails, st.lists(st.lists(st.integers(0, 2), max_size=8), max_size=8))
def test_the_longest_agreement_is_found(known: list[list[int]], asked: list[list[int]]) -> None:
    cache = PrefixCache()
    left = {page: tail for page, tail in enumerate(known) if not put(cache, tail, [page])}
    assert sorted(left.values()) == [list(t) for t in sorted({tuple(t) for t in known})]
    for tokens in asked:
        best = max((common_prefix(t, tokens) for t in left.values()), default=0)
        taken = cache.take_tail("", [], tokens)
        if best == 0:
            assert taken is None
            continue
        assert taken is not None
        page, common = taken
        lossless = tokens[:best] in left.values()
        tail = left.pop(page)
        assert common == best == common_prefix(tail, tokens)
        assert len(tail) == best or not lossless
    assert sorted(evict_all(cache)) == sorted(left)


def test_published_pages_are_shared_and_in_use() -> None:
    cache = PrefixCache()
    path = cache.pin("", text("abc"))
    cache.publish("", path, text("ab", (1,)), [0, 1, 2])
    assert [n.page for n in path] == [0, 1]
    other = cache.pin("", text("abd"))
    assert other == path
    assert cache.unused == 0
    cache.publish("", path, text("abc"), [0, 1, 2])
    assert cache.store("", path, text("abc"), [0, 1, 2]) == []
    assert evict_all(cache) == [2]
    assert cache.store("", other, text("ab"), [0, 1, 5]) == [5]
    assert evict_all(cache) == [1, 0]


def test_publishing_ends_at_a_page_that_is_there() -> None:
    cache = PrefixCache()
    put(cache, text("ab"), [10, 11])
    path = cache.pin("", text("a"))
    cache.publish("", path, text("abc"), [10, 1, 2])
    assert [n.page for n in path] == [10]
    assert cache.store("", path, text("abc"), [10, 1, 2]) == [1]
    assert [n.page for n in cache.pin("", text("abc"))] == [10, 11, 2]


def test_tenants_share_nothing() -> None:
    cache = PrefixCache()
    tokens = text("ab", (1, 2))
    assert put(cache, tokens, [0, 1, 2], "one") == []
    assert cache.pin("two", tokens) == []
    assert cache.take_tail("two", [], [1]) is None
    assert put(cache, tokens, [3, 4, 5], "two") == []
    assert [n.page for n in cache.pin("two", tokens)] == [3, 4]
    assert sorted(cache.drop("one")) == [0, 1, 2]
    assert cache.pin("one", tokens) == []
    assert cache.drop("two") == [5]
    assert cache.drop("nobody") == []


def test_a_tenant_of_whom_nothing_is_left_costs_nothing() -> None:
    cache = PrefixCache()
    for n in range(50):
        salt = f"tenant {n}"
        assert put(cache, [], [n], salt) == [n]
        assert cache.take_tail(salt, cache.pin(salt, [1]), [1]) is None
        cache.publish(salt, [], [1, 2], [0])
        put(cache, text("ab", (1,)), [0, 1, 2], salt)
        evict_all(cache)
    assert not cache._roots


def test_more_tokens_than_pages_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match="bug"):
        PrefixCache().store("", [], text("a", (1,)), [0])
    with pytest.raises(RuntimeError, match="bug"):
        PrefixCache().publish("", [], text("a", (1,)), [0])
