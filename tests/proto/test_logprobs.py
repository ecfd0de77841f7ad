"""Log probabilities on the wire."""

from __future__ import annotations

import contextlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acespec.proto.errors import BadFrame
from acespec.proto.logprobs import TokenLogprobs, of_row, pack, unpack

FLOATS = st.floats(max_value=0, width=32)
ITEMS = st.builds(
    TokenLogprobs,
    FLOATS,
    st.lists(st.tuples(st.integers(0, 2**32 - 1), FLOATS), max_size=20).map(tuple),
)


@given(items=st.lists(ITEMS, max_size=30))
def test_what_is_unpacked_is_what_was_packed(items: list[TokenLogprobs]) -> None:
    data = pack(items)
    assert unpack(data) == items
    assert len(data) == sum(5 + 8 * len(item.top) for item in items)


@given(items=st.lists(ITEMS, min_size=1, max_size=5), cut=st.integers(1, 200))
def test_what_is_cut_off_is_noticed_or_a_shorter_list(items: list[TokenLogprobs], cut: int) -> None:
    data = pack(items)[:-cut]
    with contextlib.suppress(BadFrame):
        assert unpack(data) == items[: len(unpack(data))]
        assert pack(unpack(data)) == data


@given(data=st.binary(max_size=300))
def test_any_bytes_give_items_or_a_bad_frame(data: bytes) -> None:
    with contextlib.suppress(BadFrame):
        assert len(unpack(data)) * 5 <= len(data)


@given(seed=st.integers(0, 10**6), top=st.integers(0, 20), size=st.integers(1, 60), padding=st.integers(0, 9))
def test_a_row_gives_its_softmax_and_the_likeliest_lowest_ids_first(
    seed: int, top: int, size: int, padding: int
) -> None:
    rng = np.random.default_rng(seed)
    row = np.concatenate([rng.integers(-3, 4, size), np.full(padding, 50)]).astype(np.float32)
    token = int(rng.integers(size))
    item = of_row(row, token, top, size)
    expected = row[:size].astype(np.float64) - np.log(np.exp(row[:size].astype(np.float64)).sum())
    assert abs(item.logprob - expected[token]) < 1e-6
    assert [i for i, _ in item.top] == sorted(range(size), key=lambda i: (-row[i], i))[:top]
    assert dict(item.top).get(token, item.logprob) == item.logprob
