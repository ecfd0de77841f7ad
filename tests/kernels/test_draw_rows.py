"""Rows drawn by the kernel are those of `acespec.proto.sampling.sample`, whatever the filters and the logits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from acespec.cloud.draw_rule import DrawRule
from acespec.kernels import draw_rows as module
from acespec.kernels import row_look
from acespec.kernels.cut_search import LOWEST_KEY, mass, ordered, value_of
from acespec.kernels.draw_rows import _cut, draw_rows, draw_rows_reference, draw_scratch
from acespec.kernels.row_params import RowParams, row_params, to_device
from acespec.proto import filters
from acespec.proto.sampling import sample
from acespec.proto.sampling_params import SamplingParams

INF, NAN = math.inf, math.nan
Row = NDArray[np.float32]
Draw = tuple[SamplingParams, int, int]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Blocks so small that short rows have many, and lists of candidates more than one."""
    monkeypatch.setattr(row_look, "BLOCK", 32)
    monkeypatch.setattr(module, "FEW", 8)
    return


def params_of(draws: Sequence[Draw]) -> RowParams:
    return to_device(row_params([(DrawRule(p, seed=seed, prompt_len=0), at) for p, seed, at in draws]))


def drawn(rows: Sequence[Row], draws: Sequence[Draw], vocab_size: int, launch=draw_rows) -> list[int]:
    """Lines in reverse, with one that is left out; the logits must not change."""
    count = len(rows)
    which = torch.tensor([-1, *range(count - 1, -1, -1)], dtype=torch.int32)
    logits = torch.from_numpy(np.stack([rows[0], *rows[::-1]]))
    before = logits.clone()
    ids = torch.full((count + 1,), -5, dtype=torch.int32)
    params = params_of([*draws, draws[0]])
    with np.errstate(over="ignore"):
        if launch is draw_rows:
            draw_rows(logits, which, params, vocab_size, draw_scratch(count + 2, logits.shape[1]).first(count + 1), ids)
        else:
            draw_rows_reference(logits, which, params, vocab_size, ids)
    assert logits.numpy().tobytes() == before.numpy().tobytes()
    assert ids[-1] == -5
    return ids[:-1].tolist()


def expected(rows: Sequence[Row], draws: Sequence[Draw], vocab_size: int) -> list[int]:
    return [sample(x, p, s, at, vocab_size=vocab_size) for x, (p, s, at) in zip(rows, draws, strict=True)]


def check(rows: Sequence[Row], draws: Sequence[Draw], vocab_size: int) -> None:
    right = expected(rows, draws, vocab_size)
    assert drawn(rows, draws, vocab_size) == right
    assert drawn(rows, draws, vocab_size, draw_rows_reference) == right


def combinations(vocab: int) -> list[SamplingParams]:
    return [
        SamplingParams(temperature=t, top_k=k, top_p=p, min_p=m)
        for t in (0.0, 0.7, 1.0, 3.0)
        for k in (0, 1, 5, vocab - 1, vocab, vocab + 9)
        for p in (1.0, 0.9, 0.3, 1e-9, 0.0)
        for m in (0.0, 0.05, 1.0)
    ]


def test_every_combination_of_filters() -> None:
    """Rows with many equal logits, so that both cuts fall among equals."""
    dice = np.random.default_rng(0)
    vocab = 75
    draws = [(p, int(dice.integers(0, 1 << 63)) * 2 + 1, int(dice.integers(0, 1 << 31))) for p in combinations(vocab)]
    dice.shuffle(draws)
    draws = draws[:30]
    rows = [np.round(dice.normal(0, 2, vocab + 5) * 2).astype(np.float32) / 2 for _ in draws]
    check(rows, draws, vocab)


ODD_ROWS = {
    "constant": [1.5] * 40,
    "all -inf": [-INF] * 40,
    "all NaN": [NAN] * 40,
    "one number": [-INF] * 30 + [2.0] + [NAN] * 9,
    "inf twice": [0.0] * 10 + [INF, 3.0, INF] + [1.0] * 27,
    "huge": [1e30, 3e38, -3e38, 1e29, 9.99e29] * 8,
    "both zeros": [0.0, -0.0, -1e-45, 1e-45, -0.0] * 8,
    "coarse": [1e9, 1e9 - 64, 1e9 + 64, 1e9 - 128] * 10,
    "far below": [0.0] + [-100.0] * 20 + [-27.7, -27.8, -28.0] * 6 + [-INF],
    "few finite": [-INF, 0.5, -INF, 0.25, NAN] * 3 + [-INF] * 25,
}


@pytest.mark.parametrize("name", ODD_ROWS)
def test_odd_rows(name: str) -> None:
    row = np.array(ODD_ROWS[name], np.float32)
    vocab = row.size - 1
    kinds = [
        SamplingParams(),
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.5, top_k=7),
        SamplingParams(temperature=2.0, top_p=0.8),
        SamplingParams(temperature=1.0, min_p=0.5),
        SamplingParams(temperature=1.0, top_k=9, top_p=0.6, min_p=0.01),
        SamplingParams(temperature=1e-30),
    ]
    draws = [(p, 99, at) for at, p in enumerate(kinds)]
    check([row] * len(draws), draws, vocab)


number = st.one_of(
    st.integers(-6, 6).map(lambda n: n / 4),
    st.floats(-30, 30, width=32),
    st.sampled_from([-INF, INF, NAN, -0.0, 1e30, -1e38, 5.0, 5.000001]),
)


@settings(max_examples=15)
@given(
    st.integers(1, 60).flatmap(
        lambda size: st.tuples(st.lists(number, min_size=size, max_size=size), st.integers(1, size))
    ),
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
        top_k=st.integers(0, 20),
        top_p=st.one_of(st.just(1.0), st.floats(0, 1)),
        min_p=st.one_of(st.just(0.0), st.floats(0, 1)),
    ),
    st.integers(0, (1 << 64) - 1),
)
def test_any_row(row_and_size: tuple[list[float], int], params: SamplingParams, seed: int) -> None:
    values, vocab = row_and_size
    check([np.array(values, np.float32)], [(params, seed, 17)], vocab)


@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
def test_long_rows_in_blocks_as_launched(spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flat, middling and peaked rows: the cuts lie in all parts of the row and lists are long."""
    monkeypatch.undo()
    assert row_look.BLOCK == 2048
    dice = np.random.default_rng(1)
    vocab = 5000
    kinds = [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.8, top_k=3000, top_p=0.95, min_p=0.02),
        SamplingParams(temperature=1.0, top_p=1 - 2**-53),
    ]
    draws = [(p, 7 << 60, 1000 + n) for n, p in enumerate(kinds)]
    rows = [dice.normal(0, spread, vocab + 40).astype(np.float32) for _ in draws]
    check(rows, draws, vocab)


@triton.jit
def _cuts(keys, peaks, sums, spare, cuts, ties, size, best, k, p, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    cut, tie = _cut(keys, peaks, sums, spare, size, best, tl.load(k), tl.load(p), BLOCKS, BLOCK)
    tl.store(cuts, cut)
    tl.store(ties, tie)


def kept_by_cut(row: Row, params: SamplingParams) -> NDArray[np.intp]:
    """What the cuts leave of a row at temperature 1."""
    scratch, tensors = draw_scratch(1, row.size), params_of([(params, 0, 0)])
    row_look.prepare(torch.from_numpy(row)[None], torch.zeros(1, dtype=torch.int32), tensors, row.size, scratch)
    cut, ties = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int64)
    keys = scratch.keys[0].numpy()
    _cuts[(1,)](
        *(scratch.keys, scratch.peaks, scratch.sums, scratch.spare, cut, ties),
        *(row.size, int(keys.max()), tensors.top_k, tensors.top_p),
        BLOCKS=triton.next_power_of_2(scratch.peaks.shape[1]),
        BLOCK=row_look.BLOCK,
    )
    above, equal = np.flatnonzero(keys > int(cut)), np.flatnonzero(keys == int(cut))
    ids = np.sort(np.concatenate((above, equal[: int(ties)])))
    return ids[row[ids] > -INF]


@pytest.mark.parametrize(("k", "p"), [(10, 1.0), (0, 0.7), (12, 0.8), (0, 0.999), (18, 0.5), (3, 0.0), (22, 1.0)])
def test_the_cut_keeps_exactly_what_filters_keep(k: int, p: float) -> None:
    """Whichever of many equals the cut falls on."""
    dice = np.random.default_rng(4)
    for row in (
        np.array([3.0] * 3 + [1.0] * 6 + [2.0] * 4 + [0.0] * 10, np.float32),
        dice.integers(0, 3, 100).astype(np.float32) / 2,
        np.full(36, 2.5, np.float32),  # half of the mass is a whole number of tokens
        np.where(dice.integers(0, 3, 70) > 0, -INF, dice.normal(0, 3, 70)).astype(np.float32),
    ):
        params = SamplingParams(temperature=1.0, top_k=k, top_p=p)
        assert np.array_equal(kept_by_cut(row, params), filters.kept(row, params))


def test_the_cut_of_long_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many candidates that their list is narrowed in place, more than once."""
    monkeypatch.setattr(row_look, "BLOCK", 64)
    row = np.random.default_rng(5).normal(0, 0.1, 700).astype(np.float32)
    for k, p in ((300, 1.0), (0, 0.6)):
        params = SamplingParams(temperature=1.0, top_k=k, top_p=p)
        assert np.array_equal(kept_by_cut(row, params), filters.kept(row, params))


@triton.jit
def _masses(x, out, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out + at, mass(tl.load(x + at)))


@triton.jit
def _keys(x, out, back, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    key = ordered(tl.load(x + at))
    tl.store(out + at, key)
    tl.store(back + at, value_of(key))


def test_masses_have_the_reference_s_bits() -> None:
    dice = np.random.default_rng(2)
    count = 1 << 16
    x = -dice.exponential(8, count).astype(np.float32)
    x[:6] = [0.0, -0.0, -INF, -80.0, -27.725887, -1e30]
    out = torch.zeros(count, dtype=torch.int64)
    _masses[(1,)](torch.from_numpy(x), out, COUNT=count)
    assert np.array_equal(out.numpy(), filters.mass(x))


def test_keys_keep_the_order() -> None:
    dice = np.random.default_rng(3)
    count = 1 << 14
    x = dice.integers(0, 1 << 32, count, np.uint32).view(np.float32)
    x = np.where(np.isnan(x), np.float32(1), x)
    x[:4] = [-INF, 0.0, -0.0, 1e-45]
    x.sort()
    keys, back = torch.zeros(count, dtype=torch.int32), torch.zeros(count)
    _keys[(1,)](torch.from_numpy(x), keys, back, COUNT=count)
    assert keys[0] == LOWEST_KEY.value
    assert np.array_equal(np.diff(x) > 0, np.diff(keys.numpy().astype(np.int64)) > 0)
    assert np.array_equal(back.numpy(), x)
