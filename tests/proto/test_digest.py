"""The rolling digest: known chain, any length, truncation."""

from __future__ import annotations

from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.proto import digest

TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=30)


def test_known_chain() -> None:
    one = blake2b(bytes(16) + (258).to_bytes(4, "little"), digest_size=16).digest()
    two = blake2b(one + (7).to_bytes(4, "little"), digest_size=16).digest()
    assert digest.extend(digest.EMPTY, [258, 7]) == two
    assert two.hex() == "71256d6b378bb0172ae6b5eb885f7e39"
    assert digest.short(two) == int.from_bytes(two[:4], "little")
    assert digest.extend(two, []) == two


@given(first=TOKENS, second=TOKENS)
def test_extending_in_parts_is_extending_at_once(first: list[int], second: list[int]) -> None:
    whole = digest.extend(digest.EMPTY, first + second)
    assert digest.extend(digest.extend(digest.EMPTY, first), second) == whole
    assert digest.PrefixDigest(first + second).at(len(first)) == digest.extend(digest.EMPTY, first)


@given(tokens=TOKENS, more=TOKENS, data=st.data())
def test_truncation_forgets_and_goes_on(tokens: list[int], more: list[int], data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(tokens)))
    chain = digest.PrefixDigest(tokens)
    chain.truncate(length)
    assert chain.length == length
    chain.extend(more)
    assert chain.length == length + len(more)
    assert chain.at(chain.length) == digest.extend(digest.EMPTY, tokens[:length] + more)


def test_different_prefixes_differ() -> None:
    prefixes = [[], [0], [0, 0], [1], [256], [1, 0], [0, 1]]
    assert len({digest.extend(digest.EMPTY, p) for p in prefixes}) == len(prefixes)


@pytest.mark.parametrize("length", [-1, 3])
def test_no_digest_beyond_the_sequence(length: int) -> None:
    chain = digest.PrefixDigest([1, 2])
    with pytest.raises(IndexError, match="holds 2 tokens"):
        chain.at(length)
    with pytest.raises(IndexError, match="holds 2 tokens"):
        chain.truncate(length)
    assert chain.length == 2
