"""What the n-gram drafter keeps on disk: it comes back, stays bounded, and survives damage and rivals."""

from __future__ import annotations

import logging
import multiprocessing
import random
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.drafters.base import TurnContext
from acespec.edge.drafters.contexts import context_keys
from acespec.edge.drafters.count_table import COUNT_CAP, WIDTH, CountTable
from acespec.edge.drafters.ngram import NgramDrafter
from acespec.edge.drafters.ngram_rates import fresh_rates
from acespec.edge.drafters.table_file import TableFile
from acespec.proto.sampling_params import SamplingParams

VOCAB = 500


def table_of(text: list[int], max_contexts: int = 10_000) -> CountTable:
    table = CountTable(max_contexts)
    for at, token in enumerate(text):
        table.learn(text, at, token)
    return table


def stored(folder: Path, text: list[int], key: str = "target") -> TableFile:
    store = TableFile(folder, key, VOCAB)
    store.save(table_of(text), fresh_rates())
    return store


def loaded(folder: Path, key: str = "target", vocab: int = VOCAB) -> dict[int, tuple[int, ...]]:
    table = CountTable()
    TableFile(folder, key, vocab).load(table, fresh_rates())
    return dict(table.rows())


@given(st.lists(st.integers(0, 5), max_size=80))
def test_the_distribution_is_one_and_counts_are_bounded(text: list[int]) -> None:
    table = table_of(text)
    masses = table.distribution(text, len(text))
    assert all(0 < p < 1 for p in masses.values())
    assert sum(masses.values()) < 1 + 1e-9
    assert all(len(row) <= 2 * WIDTH for _, row in table.rows())


def test_longer_contexts_decide_and_shorter_ones_fill_in() -> None:
    table = table_of([1, 2, 3, 9, 2, 4, 9, 2, 4, 1, 2, 3])
    known = table.distribution([1, 2], 2)
    assert known[3] > known[4] > 0
    unknown = table.distribution([8, 2], 2)
    # After 2 alone: 3 twice, 4 twice; Witten and Bell leave 2 / (4 + 2) to the unseen.
    assert unknown == pytest.approx({3: 2 / 6, 4: 2 / 6})


def test_counts_are_halved_before_they_overflow() -> None:
    table = CountTable()
    (key,) = context_keys([1], 1, 1)
    table.merge(key, (5, COUNT_CAP, 6, 3))
    table.learn([1], 1, 5)
    assert dict(table.rows())[key] == (5, (COUNT_CAP + 1) // 2, 6, 1)


def test_pruning_keeps_what_is_common_and_recent() -> None:
    dice = random.Random(1)
    table = CountTable(max_contexts=400)
    chorus = [1, 2, 3, 4, 5]
    for _ in range(60):
        noise = [dice.randrange(10, VOCAB) for _ in range(10)]
        for part in (chorus, noise):
            for at, token in enumerate(part):
                table.learn(part, at, token)
        assert len(table) <= 400
    assert table.distribution([1, 2, 3], 3)[4] > 0.9


def test_pruning_spares_the_old_but_frequent_over_the_new_and_rare() -> None:
    table = table_of([1, 2] * 20, max_contexts=100)
    for at in range(100):
        table.learn([10 + at], 1, 9)
    assert table.distribution([1], 1)[2] > 0.9


def test_it_comes_back(tmp_path: Path) -> None:
    text = [1, 2, 3, 1, 2, 4, 1, 2, 3]
    stored(tmp_path, text)
    assert loaded(tmp_path) == dict(table_of(text).rows())
    assert list(loaded(tmp_path)) == list(dict(table_of(text).rows()))


def test_models_do_not_mix(tmp_path: Path) -> None:
    stored(tmp_path, [1, 2, 3], key="org/model")
    assert loaded(tmp_path, key="org-model") == {}
    assert loaded(tmp_path, key="org/model") != {}


def test_only_the_user_may_read_it(tmp_path: Path) -> None:
    store = stored(tmp_path / "ngram", [1, 2, 3])
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert [p.name for p in store.path.parent.iterdir()] == [store.path.name]


def damage_nothing_left(data: bytes) -> bytes:
    return b""


def damage_cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def damage_flipped(data: bytes) -> bytes:
    middle = len(data) // 3
    return data[:middle] + bytes(b ^ 0x5A for b in data[middle : middle + 40]) + data[middle + 40 :]


def damage_other_format(data: bytes) -> bytes:
    return b"not a table at all" * 100


@pytest.mark.parametrize("damage", [damage_nothing_left, damage_cut, damage_flipped, damage_other_format])
def test_a_damaged_file_is_ignored_with_a_warning_and_replaced(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    path = stored(tmp_path, list(range(60)) * 3).path
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert loaded(tmp_path) == {}
    assert path.name in caplog.text
    stored(tmp_path, [1, 2, 3])
    assert loaded(tmp_path) == dict(table_of([1, 2, 3]).rows())


def test_every_single_damaged_byte_is_survived(tmp_path: Path) -> None:
    path = stored(tmp_path, [1, 2, 3, 1, 2, 4]).path
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        assert all(row[0] < VOCAB for row in loaded(tmp_path).values())


@pytest.mark.parametrize(
    "change",
    [
        {"header": np.array([1, VOCAB + 1])},
        {"header": np.array([99, VOCAB])},
        {"tokens": np.array([VOCAB, 1, 1], dtype=np.uint32)},
        {"widths": np.array([9, 0], dtype=np.uint8)},
        {"widths": np.array([1, 1], dtype=np.uint8)},
        {"counts": np.array([0, 1, 1], dtype=np.uint16)},
        {"counts": np.array([1, 1], dtype=np.uint16)},
        {"keys": np.array([1.5, 2.5])},
        {"rates": np.array(["a", "b"])},
        {"keys": np.array([[1], [2]], dtype=np.uint64)},
    ],
    ids=lambda change: "-".join(change),
)
def test_parts_that_do_not_fit_are_refused(
    tmp_path: Path, change: dict[str, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    parts: dict[str, np.ndarray] = {
        "header": np.array([1, VOCAB]),
        "keys": np.array([1, 2], dtype=np.uint64),
        "widths": np.array([2, 1], dtype=np.uint8),
        "tokens": np.array([5, 6, 7], dtype=np.uint32),
        "counts": np.array([1, 2, 3], dtype=np.uint16),
        "rates": np.zeros((2, 3), dtype=np.float32),
    }
    path = TableFile(tmp_path, "target", VOCAB).path
    with path.open("wb") as out:
        np.savez(out, allow_pickle=False, **parts)
    assert loaded(tmp_path) == {1: (5, 1, 6, 2), 2: (7, 3)}
    with path.open("wb") as out:
        np.savez(out, allow_pickle=False, **(parts | change))
    assert loaded(tmp_path) == {}
    assert "ignored" in caplog.text


def test_a_pickle_is_never_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = TableFile(tmp_path, "target", VOCAB).path
    with path.open("wb") as out:
        np.savez(out, header=np.array([object()], dtype=object))
    assert loaded(tmp_path) == {}
    assert "ignored" in caplog.text


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    stored(tmp_path / "file" / "ngram", [1, 2, 3])
    assert "was not saved" in caplog.text


def test_what_another_process_stored_is_joined_not_lost(tmp_path: Path) -> None:
    mine, theirs = CountTable(), CountTable()
    first, second = TableFile(tmp_path, "target", VOCAB), TableFile(tmp_path, "target", VOCAB)
    stored(tmp_path, [1, 2, 1, 2, 1, 2])
    for store, table in ((first, mine), (second, theirs)):
        store.load(table, fresh_rates())
    mine.learn([7], 1, 8)
    theirs.learn([7], 1, 9)
    first.save(mine, fresh_rates())
    second.save(theirs, fresh_rates())
    merged = loaded(tmp_path)
    shared = dict(table_of([1, 2, 1, 2, 1, 2]).rows())
    assert {key: merged[key] for key in shared} == shared
    (new,) = set(merged) - set(shared)
    assert sorted(merged[new][::2]) == [8, 9]


def _learn_and_save(folder: Path, own: int) -> None:
    for round_ in range(4):
        stored(folder, [own, round_, own, round_ + 1])


def test_processes_that_save_at_once_leave_a_whole_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_learn_and_save, args=(tmp_path, 100 + n)) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(50)
        assert worker.exitcode == 0
    assert loaded(tmp_path) != {}
    assert not caplog.records
    assert len(list(tmp_path.iterdir())) == 1


def test_a_drafter_remembers_across_runs(tmp_path: Path) -> None:
    turn = TurnContext(SamplingParams(), 1, 2, VOCAB)
    for _ in range(3):
        drafter = NgramDrafter(TableFile(tmp_path, "target", VOCAB))
        drafter.begin(turn)
        drafter.propose([1, 2])
        drafter.commit([3, 4, 5, 6], 2)
        drafter.close()
        drafter.close()
    later = NgramDrafter(TableFile(tmp_path, "target", VOCAB))
    later.begin(turn)
    (guess,) = later.propose([1, 2])
    assert (guess.token, guess.source) == (3, "table")
    assert guess.probability > 0.5
    other = NgramDrafter(TableFile(tmp_path, "other", VOCAB))
    other.begin(turn)
    assert other.propose([1, 2]) == []


def test_nothing_learned_writes_nothing(tmp_path: Path) -> None:
    drafter = NgramDrafter(TableFile(tmp_path, "target", VOCAB))
    drafter.begin(TurnContext(SamplingParams(), 1, 2, VOCAB))
    drafter.propose([1, 2])
    drafter.close()
    assert list(tmp_path.iterdir()) == []
