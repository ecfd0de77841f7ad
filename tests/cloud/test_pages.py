from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.cloud.pages import PagePool


def test_runs_of_pages_are_consecutive() -> None:
    pool = PagePool(16)
    first = pool.take()
    assert first == 0
    pages = [first]
    while (page := pool.take(pages[-1])) is not None:
        pages.append(page)
    assert pages == list(range(16))
    assert pool.free == 0


def test_the_next_session_starts_in_the_middle_of_the_longest_gap() -> None:
    pool = PagePool(100)
    assert pool.take() == 0
    assert pool.take() == 1 + (99 - 1) // 2
    assert pool.take(0) == 1  # both still grow in place
    assert pool.take(50) == 51
    assert pool.take(run=30) == 2 + (48 - 30) // 2  # the lower gap is 2..49, the upper one 52..99: first of equals


def test_a_gap_that_holds_a_run_is_not_split() -> None:
    pool = PagePool(10)
    while pool.take() is not None:
        pass
    pool.give([3, 4, 5, 6, 8])
    run = [pool.take(run=4)]
    for left in (3, 2, 1):
        run.append(pool.take(run[-1], left))
    assert run == [3, 4, 5, 6]


def test_a_taken_neighbour_sends_the_run_elsewhere() -> None:
    pool = PagePool(4)
    assert [pool.take(), pool.take(0), pool.take(1)] == [0, 1, 2]
    pool.give([0])
    assert pool.take(1) in {0, 3}
    pool.give([1])
    assert pool.take(3) is not None  # 4 does not exist


@pytest.mark.parametrize("page", [-1, 0, 5, 6])
def test_a_page_given_twice_or_out_of_range_is_a_bug(page: int) -> None:
    pool = PagePool(5)
    taken = pool.take(2)
    assert taken == 3
    with pytest.raises(RuntimeError, match="bug"):
        pool.give([page])
    pool.give([taken])
    with pytest.raises(RuntimeError, match="bug"):
        pool.give([taken])


def test_a_page_twice_in_one_call_is_a_bug() -> None:
    pool = PagePool(5)
    page = pool.take()
    assert page is not None
    with pytest.raises(RuntimeError, match="twice"):
        pool.give([page, page])


def test_an_empty_pool_has_nothing() -> None:
    assert PagePool(0).take() is None
    assert PagePool(0).take(3) is None


def longest_gap(free: set[int]) -> int:
    return max((next(n for n in range(1, len(free) + 1) if p + n not in free) for p in free), default=0)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 40), st.lists(st.tuples(st.booleans(), st.integers(0, 39), st.integers(1, 8))))
def test_any_history_agrees_with_a_set(count: int, ops: list[tuple[bool, int, int]]) -> None:
    pool, free = PagePool(count), set(range(count))
    for take, number, run in ops:
        if take:
            after = number if number < count else None
            page = pool.take(after, run)
            if not free:
                assert page is None
                continue
            assert page in free
            if after is not None and after + 1 in free:
                assert page == after + 1
            else:
                # It stands in a longest gap, and as much of the run as can follow does.
                longest = longest_gap(free)
                low = high = page
                while low - 1 in free:
                    low -= 1
                while high + 1 in free:
                    high += 1
                assert high - low + 1 == longest
                assert high - page + 1 >= min(run, longest)
            free.discard(page)
        elif number < count and number not in free:
            pool.give([number])
            free.add(number)
        assert pool.free == len(free)
    pool.give(set(range(count)) - free)
    assert pool.free == pool.count == count
