"""Logits of a row are a bitwise function of its prefix, whatever else is in the step or was in the pages."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.cloud.torch_backend.runner import TorchRunner
from tests.cloud.torch_runners import (
    VOCAB,
    Logits,
    block,
    in_chunks,
    one_at_a_time,
    poison,
    restore_threads,
    same_bits,
    table,
    text,
    tiny_runner,
)
from tests.tiny import ModelType

FAMILIES: tuple[ModelType, ...] = ("llama", "qwen2", "qwen3")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    yield
    restore_threads()


@pytest.mark.parametrize("family", FAMILIES)
def test_any_chunking_gives_the_bits_of_one_token_at_a_time(family: ModelType) -> None:
    runner = tiny_runner(family)
    tokens = text(300)
    plain = one_at_a_time(runner, tokens)
    for sizes in ([300], [128], [64], [2], [3], [5], [17], [1, 16, 2, 7], [63, 2], [129, 1]):
        assert same_bits(in_chunks(runner, tokens, sizes), plain), sizes


@pytest.mark.parametrize(
    ("threads", "heads", "kv_heads", "ffn"),
    [(1, 4, 2, 1100), (2, 4, 2, 1100), (3, 4, 2, 128), (3, 1, 1, 128), (4, 4, 4, 96), (4, 2, 1, 100), (4, 1, 1, 128)],
)
def test_bits_hold_at_every_thread_count_and_shape(threads: int, heads: int, kv_heads: int, ffn: int) -> None:
    runner = tiny_runner(threads=threads, heads=heads, kv_heads=kv_heads, ffn=ffn)
    tokens = text(16)
    plain = one_at_a_time(runner, tokens)
    for sizes in ([16], [1, 4, 11]):
        assert same_bits(in_chunks(runner, tokens, sizes), plain), sizes


def test_steps_on_another_thread_keep_the_thread_count() -> None:
    runner = tiny_runner(threads=3)
    tokens = text(20)
    here = one_at_a_time(runner, tokens)
    with ThreadPoolExecutor(1) as pool:
        assert same_bits(pool.submit(in_chunks, runner, tokens, [7]).result(), here)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 17])
def test_batch_mates_do_not_matter(rows: int) -> None:
    runner = tiny_runner()
    lengths = [70, 3, 130, 64, 20]
    texts = [text(length + rows, seed) for seed, length in enumerate(lengths)]
    alone = [one_at_a_time(runner, tokens)[-rows:] for tokens in texts]
    for n, (tokens, length) in enumerate(zip(texts, lengths, strict=True)):
        runner.logits([block(table(n), 0, tokens[:length], length)])
    blocks = [block(table(n), lengths[n], tokens[lengths[n] :]) for n, tokens in enumerate(texts)]
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 1, 3]):
        together = runner.logits([blocks[n] for n in order])
        assert all(same_bits(got, alone[n]) for n, got in zip(order, together, strict=True)), order


def test_rejected_drafts_leave_no_trace() -> None:
    runner = tiny_runner()
    tokens = text(200)
    plain = one_at_a_time(runner, tokens)
    runner.logits([block(table(0), 0, tokens[:40], 40)])
    for start in range(40, 190, 7):
        runner.logits([block(table(0), start, [tokens[start], *text(60, seed=start)])])
        (rows,) = runner.logits([block(table(0), start, tokens[start : start + 7])])
        assert same_bits(rows, plain[start : start + 7]), start


def test_stale_positions_are_never_read() -> None:
    """NaN in everything beyond the start, as a rejected draft of a broken model could leave it."""
    runner = tiny_runner()
    tokens = text(150)
    plain = one_at_a_time(runner, tokens)
    start = 0
    for size in (30, 1, 2, 31, 1, 1, 5, 60, 19):
        poison(runner, table(0), start)
        (rows,) = runner.logits([block(table(0), start, tokens[start : start + size])])
        assert same_bits(rows, plain[start : start + size]), (start, size)
        start += size


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_a_draft_with_broken_embedding_does_not_reach_the_rows_before_it(value: float) -> None:
    runner = tiny_runner()
    broken = 7
    tokens = [t for t in text(100) if t != broken][:70]
    plain = one_at_a_time(runner, tokens)
    with torch.inference_mode():
        runner._model._embedding[broken] = value
    rows = in_chunks(runner, [*tokens, broken, *tokens[:5]], [len(tokens) + 6])
    assert same_bits(rows[: len(tokens)], plain)


def test_bits_hold_up_to_the_last_position() -> None:
    runner = tiny_runner()
    tokens = text(512)
    assert same_bits(in_chunks(runner, tokens, [128]), in_chunks(runner, tokens, [255, 2, 1]))


@cache
def _golden() -> tuple[TorchRunner, list[list[int]], list[Logits]]:
    runner = tiny_runner("qwen2")
    texts = [text(150, seed) for seed in range(3)]
    return runner, texts, [one_at_a_time(runner, tokens) for tokens in texts]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_schedule_gives_the_golden_bits(data: st.DataObject) -> None:
    """Sessions come and go in any order, with right drafts, wrong drafts and rollbacks."""
    runner, texts, golden = _golden()
    committed = [0] * len(texts)
    for _ in range(data.draw(st.integers(1, 8), "steps")):
        members = data.draw(st.lists(st.sampled_from(range(len(texts))), min_size=1, unique=True), "members")
        blocks, right_rows = [], []
        for n in members:
            back = data.draw(st.integers(0, min(committed[n], 70)), "back")
            start = committed[n] - back
            right = data.draw(st.integers(1, min(90, len(texts[n]) - start)), "right")
            wrong = data.draw(st.lists(st.integers(0, VOCAB - 1), max_size=9), "wrong")
            blocks.append(block(table(n), start, [*texts[n][start : start + right], *wrong]))
            right_rows.append((n, start, right))
        for (n, start, right), logits in zip(right_rows, runner.logits(blocks), strict=True):
            assert same_bits(logits[:right], golden[n][start : start + right])
            committed[n] = min(start + right, len(texts[n]) - 1)


def test_the_reference_itself_is_deterministic() -> None:
    """Two loads of the same folder give the same bits: nothing depends on where memory happens to lie."""
    tokens = text(70)
    first, second = (one_at_a_time(tiny_runner("qwen3"), tokens) for _ in range(2))
    assert same_bits(first, second)
    assert np.isfinite(first).all()
