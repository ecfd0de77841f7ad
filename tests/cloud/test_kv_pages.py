from __future__ import annotations

from collections.abc import Sequence

import pytest

from acespec.cloud.kv_pages import KvPages
from acespec.cloud.runner import PAGE, pages_for


def text(letters: str, tail: Sequence[int] = ()) -> list[int]:
    """A page of each letter, then the tail."""
    return [ord(letter) for letter in letters for _ in range(PAGE)] + list(tail)


def run(kv: KvPages, tokens: list[int], salt: str = "", answer: Sequence[int] = ()) -> int:
    """A whole turn; how many positions it found."""
    hold = kv.hold(salt, tokens)
    cached = hold.cached
    assert kv.reserve(hold, len(tokens) + len(answer))
    kv.release(hold, [*tokens, *answer])
    return cached


def test_a_turn_takes_pages_and_leaves_its_tokens() -> None:
    kv = KvPages(8)
    hold = kv.hold("", text("ab", (1, 2)))
    assert (hold.table, hold.cached, hold.shared, kv.in_use) == ((), 0, 0, 0)
    assert kv.reserve(hold, 4 * PAGE + 1)
    assert hold.table == (0, 1, 2, 3, 4)
    assert (kv.free, kv.in_use, kv.cached, kv.available) == (3, 5, 0, 3)
    kv.trim(hold, 2 * PAGE + 5)
    assert hold.table == (0, 1, 2)
    kv.release(hold, text("ab", (1, 2, 3)))
    assert (hold.table, hold.shared, hold.cached) == ((), 0, 0)
    assert (kv.free, kv.in_use, kv.cached, kv.available) == (5, 0, 3, 8)


def test_the_next_turn_goes_on_where_the_last_one_ended() -> None:
    kv = KvPages(8)
    first = text("ab", (1, 2, 3))
    run(kv, first)
    assert run(kv, [*first, 4, 5]) == len(first)
    assert kv.in_use == 0


@pytest.mark.parametrize("length", [1, 2, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 3 * PAGE - 1, 3 * PAGE])
def test_the_last_token_is_never_cached_and_its_page_is_the_sessions_own(length: int) -> None:
    kv = KvPages(12)
    tokens = text("abc")[:length]
    run(kv, tokens)
    hold = kv.hold("", tokens)
    # What was left behind a whole page is whole itself if the length is a multiple, and then only equality finds it.
    assert hold.cached == (length - 1 if length % PAGE else length - PAGE)
    assert hold.shared == (length - 1) // PAGE
    assert kv.reserve(hold, length)
    assert len(hold.table) == pages_for(length)
    kv.release(hold, tokens)


def test_regenerating_finds_the_prompt_again() -> None:
    kv = KvPages(12)
    prompt = text("ab", (1, 2, 3))
    run(kv, prompt, answer=(7, 8, 9))
    assert run(kv, prompt, answer=(7, 9)) == len(prompt) - 1
    long = [5] * (2 * PAGE)
    assert run(kv, prompt, answer=long) == len(prompt) - 1
    assert run(kv, prompt) == 2 * PAGE  # the page behind is full by now, and differs


def test_an_edited_history_is_found_up_to_the_edit() -> None:
    kv = KvPages(12)
    history = text("abc", (1, 2, 3, 4))
    run(kv, history)
    edited = list(history)
    edited[2 * PAGE + 10] = 999
    assert run(kv, edited) == 2 * PAGE
    assert run(kv, [*history, 5]) == len(history)
    edited = [*history]
    edited[-2] = 999
    assert run(kv, edited) == len(history) - 2
    assert run(kv, history) == len(history) - 2  # its tail was taken, and overwritten from there


def test_siblings_share_a_published_prompt() -> None:
    kv = KvPages(16)
    prompt = text("abc", (1, 2))
    first = kv.hold("", prompt)
    assert kv.reserve(first, len(prompt))
    kv.publish(first, prompt[: 2 * PAGE - 1])
    assert first.shared == 1
    kv.publish(first, prompt)
    assert first.shared == 3
    siblings = [kv.hold("", prompt) for _ in range(5)]
    assert all(s.cached == 3 * PAGE and s.table == first.table[:3] for s in siblings)
    assert all(kv.reserve(s, len(prompt)) for s in siblings)
    assert kv.in_use == 3 + 6
    assert len({s.table[3] for s in [first, *siblings]}) == 6
    for n, hold in enumerate([first, *siblings]):
        assert kv.cached == n
        kv.release(hold, [*prompt, 100 + n])
    assert kv.in_use == 0
    assert kv.cached == 3 + 6


def test_sessions_that_prefill_the_same_at_once_keep_one_copy_in_the_end() -> None:
    kv = KvPages(8)
    tokens = text("ab", (1,))
    one, two = kv.hold("", tokens), kv.hold("", tokens)
    assert kv.reserve(one, len(tokens))
    assert kv.reserve(two, len(tokens))
    kv.publish(one, tokens)
    before = two.table
    kv.publish(two, tokens)
    assert (two.table, two.shared) == (before, 0)
    kv.release(two, tokens)
    assert (kv.in_use, kv.cached) == (3, 1)
    kv.release(one, tokens)
    assert (kv.in_use, kv.cached) == (0, 3)


def test_room_is_made_by_the_least_recently_used() -> None:
    kv = KvPages(6)
    for letters in ("aa", "bb", "cc"):
        run(kv, text(letters))
    run(kv, text("aa", (1,)))  # used again, and its tail evicts the second page of b
    assert kv.stats.evicted == 1
    assert run(kv, text("cc", (1,))) == 2 * PAGE  # evicts the rest of b
    assert kv.stats.evicted == 2
    assert run(kv, text("bb", (1,))) == 0
    assert kv.count == kv.cached == 6


def test_a_reserve_that_cannot_be_had_changes_nothing() -> None:
    kv = KvPages(5)
    run(kv, text("ab"))
    busy = kv.hold("", text("c"))
    assert kv.reserve(busy, PAGE)
    hold = kv.hold("", text("ab", (1,)))
    assert (hold.shared, kv.available) == (2, 2)
    pinned = hold.table
    assert not kv.reserve(hold, 5 * PAGE)
    assert (hold.table, kv.available, kv.stats.evicted, kv.stats.asked) == (pinned, 2, 0, 3 * PAGE)
    assert kv.reserve(hold, 4 * PAGE)
    assert not kv.reserve(busy, PAGE + 1)
    kv.release(hold, text("ab"))
    assert kv.reserve(busy, 3 * PAGE)


def test_pinned_pages_are_never_evicted() -> None:
    kv = KvPages(4)
    run(kv, text("abc"))
    hold = kv.hold("", text("ab", (1,)))
    other = kv.hold("", [])
    assert kv.reserve(other, 2 * PAGE)
    assert not kv.reserve(other, 2 * PAGE + 1)
    assert not set(other.table) & set(hold.table)
    kv.drop_cached()
    assert (kv.free, kv.cached, kv.in_use) == (0, 0, 4)
    assert [kv.hold("", text("abc")).cached for _ in range(2)] == [2 * PAGE] * 2


def test_tenants_with_equal_tokens_share_nothing() -> None:
    kv = KvPages(12)
    tokens = text("ab", (1, 2, 3))
    run(kv, tokens, "one")
    assert run(kv, tokens, "two") == 0
    assert run(kv, tokens, "one ") == 0
    assert kv.cached == 9
    assert run(kv, tokens, "one") == len(tokens) - 1
    kv.drop_cached("one")
    assert kv.cached == 6
    assert (run(kv, tokens, "one"), run(kv, tokens, "two")) == (0, len(tokens) - 1)


def test_the_hit_rate_counts_a_turn_once_it_runs() -> None:
    kv = KvPages(3)
    assert kv.stats.hit_rate == 0.0
    tokens = text("a", (1, 2))
    run(kv, tokens)
    assert (kv.stats.asked, kv.stats.hit) == (PAGE + 2, 0)
    for _ in range(3):
        waiting = kv.hold("", tokens)
        assert not kv.reserve(waiting, 4 * PAGE)
        kv.release(waiting, tokens[: waiting.cached])
    hold = kv.hold("", tokens)
    assert kv.reserve(hold, PAGE + 2)
    assert kv.reserve(hold, 2 * PAGE + 2)
    assert (kv.stats.asked, kv.stats.hit) == (2 * PAGE + 4, PAGE + 1)
    assert 0.49 < kv.stats.hit_rate < 0.5


def test_a_session_that_grows_alone_has_consecutive_pages() -> None:
    kv = KvPages(64)
    holds = [kv.hold("", []) for _ in range(3)]
    for pages in range(1, 9):
        assert all(kv.reserve(hold, pages * PAGE) for hold in holds)
    for hold in holds:
        assert hold.table == tuple(range(hold.table[0], hold.table[0] + 8))


def test_pages_that_become_free_together_stay_together() -> None:
    kv = KvPages(17)
    first = kv.hold("", text("b"))  # nobody grows into a gap at page 0, so have none there
    assert kv.reserve(first, PAGE)
    run(kv, text("abcabc"))
    rest = kv.hold("", [])
    assert kv.reserve(rest, 10 * PAGE)
    hold = kv.hold("", text("c"))
    assert kv.reserve(hold, 6 * PAGE)
    assert kv.stats.evicted == 6
    assert hold.table == tuple(range(hold.table[0], hold.table[0] + 6))


def test_cutting_into_shared_pages_is_a_bug() -> None:
    kv = KvPages(4)
    hold = kv.hold("", text("a"))
    assert kv.reserve(hold, 2 * PAGE)
    kv.publish(hold, text("a"))
    kv.trim(hold, PAGE)
    with pytest.raises(RuntimeError, match="bug"):
        kv.trim(hold, PAGE - 1)


def test_releasing_more_than_the_pages_hold_is_a_bug() -> None:
    kv = KvPages(4)
    hold = kv.hold("", text("ab"))
    assert kv.reserve(hold, PAGE)
    with pytest.raises(RuntimeError, match="bug"):
        kv.release(hold, text("ab"))
    kv.release(hold, text("a"))
    kv.release(hold, [])
    assert kv.in_use == 0
