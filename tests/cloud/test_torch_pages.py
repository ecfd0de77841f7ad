"""Which pages hold a text, who computed them, and what was in them before, does not reach the bits."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from acespec.cloud.runner import PAGE, prefill_chunks
from acespec.cloud.torch_backend.config import read_config
from acespec.cloud.torch_backend.kv_cache import KvCache, page_bytes, runs
from acespec.cloud.torch_backend.runner import KV_LIMIT, TorchRunner, default_pages
from acespec.proto.errors import UsageError
from tests.cloud.torch_runners import (
    VOCAB,
    Pages,
    block,
    in_chunks,
    kv_of,
    one_at_a_time,
    poison,
    same_bits,
    table,
    text,
    tiny_folder,
    tiny_runner,
)

STATM = Path("/proc/self/statm")

TABLES: list[Pages] = [(4, 3, 2, 1), (10, 12, 14, 16), (20, 21, 30, 31), (40, 41, 42, 9), (51, 50, 52, 53)]
"""Reversed, interleaved, in two runs, consecutive but for the last, but for the first."""


@pytest.mark.parametrize(
    ("pages", "start", "end", "expected"),
    [
        ((7, 8, 9), 10, 150, [(10, 7 * PAGE + 10, 140)]),
        ((7, 8, 9), 64, 64, []),
        ((7, 6), 60, 66, [(60, 7 * PAGE + 60, 4), (64, 6 * PAGE, 2)]),
        ((7, 9, 10, 3), 64, 256, [(64, 9 * PAGE, 128), (192, 3 * PAGE, 64)]),
    ],
)
def test_positions_are_cut_where_pages_are_not_consecutive(
    pages: Pages, start: int, end: int, expected: list[tuple[int, int, int]]
) -> None:
    assert list(runs(pages, start, end)) == expected


@pytest.mark.parametrize(("heads", "head_dim"), [(4, 10), (4, 16), (2, 20), (2, 64), (2, 96), (1, 128)])
def test_scattered_pages_give_the_bits_of_consecutive_ones(heads: int, head_dim: int) -> None:
    runner = tiny_runner("qwen3", heads=heads, kv_heads=1, head_dim=head_dim)
    tokens = text(200)
    plain = one_at_a_time(runner, tokens)
    for pages in TABLES:
        assert same_bits(in_chunks(runner, tokens, [90, 1, 40, 3], pages=pages), plain), pages
        assert same_bits(kv_of(runner, pages, 200), kv_of(runner, table(31), 200)), pages


def test_two_sessions_in_each_others_gaps() -> None:
    runner = tiny_runner()
    texts = [text(150, 1), text(150, 2)]
    golden = [one_at_a_time(runner, tokens) for tokens in texts]
    tables = [(10, 12, 14), (15, 13, 11)]
    for start in range(0, 150, 30):
        blocks = [block(tables[n], start, texts[n][start : start + 30]) for n in (0, 1)]
        for rows, plain in zip(runner.logits(blocks), golden, strict=True):
            assert same_bits(rows, plain[start : start + 30])


def test_what_a_former_owner_left_does_not_matter() -> None:
    runner = tiny_runner()
    tokens = text(150)
    plain = one_at_a_time(runner, tokens)
    for pages in (table(2), (9, 7, 8)):
        for size in (150, 1, 37):
            poison(runner, pages, 0)
            assert same_bits(in_chunks(runner, tokens, [size], pages=pages), plain), (pages, size)


@pytest.mark.parametrize("own", [(2, 3, 4), (90, 70, 80)])
def test_a_cached_prefix_gives_the_bits_of_a_cold_one(own: Pages) -> None:
    """Session 2 reads session 1's whole pages, while session 1 goes on in the same steps."""
    runner = tiny_runner("qwen2")
    shared = text(128)
    first, second = shared + text(60, 1), shared + text(100, 2)
    golden = [one_at_a_time(runner, tokens) for tokens in (first, second)]
    pages = (0, 1, 60)
    in_chunks(runner, shared, [128], pages=pages)
    before = kv_of(runner, pages, 128)
    poison(runner, own, 0)
    for start in range(128, 188, 5):
        rows = runner.logits(
            [
                block((*pages[:2], *own), start, second[start : start + 5]),
                block(pages, start, first[start : start + 5]),
            ]
        )
        assert same_bits(rows[0], golden[1][start : start + 5])
        assert same_bits(rows[1], golden[0][start : start + 5])
    rest = in_chunks(runner, second, [3], start=188, pages=(*pages[:2], *own))
    assert same_bits(rest, golden[1][188:])
    assert same_bits(kv_of(runner, pages, 128), before)


def test_pages_that_are_only_read_are_not_written() -> None:
    """Not even with the bits that they hold already, nor beyond what is dirty."""
    runner = tiny_runner()
    pages = (5, 3, 8)
    in_chunks(runner, text(128), [128], pages=pages)
    before = runner._cache.kv.clone()
    for parents in ((), (-1, 0, 0, 1, 2)):
        runner.step([block(pages, 128, text(5), parents=parents)])
    changed = np.flatnonzero((runner._cache.kv != before).any(dim=4).any(dim=2).any(dim=1).any(dim=0).numpy())
    assert set(changed // PAGE) == {8}


def test_recomputed_pages_hold_the_bits_that_verify_steps_wrote() -> None:
    """Eviction: a text whose pages were given away is prefilled again, elsewhere and with other chunks."""
    runner = tiny_runner("qwen3")
    tokens = text(190)
    in_chunks(runner, tokens[:70], [70], pages=table(0))
    start = 70
    while start < len(tokens):
        right = tokens[start : start + 4]
        wrong = text(9, seed=start)
        parents = [-1, 0, 0, 2, *range(3, len(right) + 7)]
        runner.logits([block(table(0), start, [right[0], *wrong, *right[1:]][: len(parents)], parents=parents)])
        runner.logits([block(table(0), start, right + wrong[: 512 - start - 4])])
        start += len(right)
    written = kv_of(runner, table(0), 190)
    plain = one_at_a_time(runner, tokens)
    poison(runner, table(0), 0)
    for pages in (table(0), (21, 17, 19)):
        for a, b in prefill_chunks(0, 190):
            (rows,) = runner.logits([block(pages, a, tokens[a:b])])
            assert same_bits(rows, plain[a:b])
        assert same_bits(kv_of(runner, pages, 190), written)


def test_a_later_turn_gives_the_bits_of_a_first_one() -> None:
    runner = tiny_runner()
    tokens = text(260)
    cold = one_at_a_time(runner, tokens)
    pages = (6, 2, 4, 0, 8)
    turns = [(0, 50, 70), (70, 110, 129), (129, 200, 260)]
    for begin, prompt_end, end in turns:
        for a, b in prefill_chunks(begin, prompt_end):
            assert same_bits(runner.logits([block(pages, a, tokens[a:b])])[0], cold[a:b])
        for at in range(prompt_end, end, 3):
            drafts = tokens[at : min(at + 3, end)]
            (rows,) = runner.logits([block(pages, at, drafts + text(4, seed=at))])
            assert same_bits(rows[: len(drafts)], cold[at : at + len(drafts)])


def test_pages_take_the_memory_that_they_say() -> None:
    runner = TorchRunner.load(tiny_folder(), vocab_size=VOCAB, kv_pages=11)
    assert runner.pages == 11
    assert runner.page_bytes == 2 * 2 * 2 * PAGE * 16 * 4
    assert runner.kv_bytes() == 11 * runner.page_bytes


def test_the_default_is_room_for_many_sequences_but_bounded() -> None:
    config = read_config(tiny_folder())
    assert default_pages(config, 512) == 64 * 8
    assert default_pages(config, 500) == 64 * 8
    many = KV_LIMIT // page_bytes(config)
    assert default_pages(config, many * PAGE // 2) == many
    assert default_pages(config, many * PAGE) == many + 1


@pytest.mark.parametrize("pages", [0, -3, 1 << 40])
def test_pages_that_cannot_be_had_are_refused(pages: int) -> None:
    with pytest.raises(UsageError, match="pages"):
        TorchRunner.load(tiny_folder(), vocab_size=VOCAB, kv_pages=pages)


@pytest.mark.skipif(not STATM.exists(), reason="reads Linux's own figure")
def test_unused_pages_take_no_memory() -> None:
    config = read_config(tiny_folder())
    before = _resident_pages()
    cache = KvCache(config, KV_LIMIT // page_bytes(config))
    cache.kv[:, :, :, :PAGE] = 1.0
    cache.make_room((3,), 0, 5, 5)
    assert (_resident_pages() - before) * resource.getpagesize() < KV_LIMIT // 20
    assert float(cache.kv[1, 1, 1, -PAGE:].abs().sum()) == 0.0


def _resident_pages() -> int:
    return int(STATM.read_text(encoding="ascii").split()[1])
