"""Recording: the views against brute force, a self-drafting target, files, prompts, the command line."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard

from acespec.edge.drafters.base import never
from acespec.edge.drafters.gguf_drafter import load_gguf
from acespec.edge.drafters.logit_source import NARROW, LogitSource
from acespec.proto import noise, sampling
from acespec.proto.errors import Mismatch, UsageError
from acespec.proto.replay_text import read_recordings
from acespec.proto.sampling_params import SamplingParams
from acespec.sim.record import BLOCK, Sampling, View, as_trace, record, viewed
from acespec.sim.record_prompts import load_prompts
from acespec.sim.record_run import RecordOptions, record_to
from acespec.sim.trace_file import DEEPEST_RANK, FORMAT, SIBLINGS, Trace, TraceSource, read_traces, write_traces
from tests.models.tiny_gguf import write_tiny_gguf

pytest.importorskip("ik_llama_cpp")
VOCAB, SEED = 512, 11
PROMPT = list(range(20, 60))
SOURCE = TraceSource("t, gguf", "d, gguf", 0.7, SEED, "set", "p/1", "code", 40, VOCAB, False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="module")
def models(folder: Path) -> Iterator[tuple[LogitSource, LogitSource, LogitSource]]:
    """(target, the same again, another model)."""
    one, other = write_tiny_gguf(folder / "one.gguf"), write_tiny_gguf(folder / "other.gguf", seed=5)
    loaded = tuple(load_gguf(file, 512) for file in (one, one, other))
    for source in loaded:
        source.widest_pass = NARROW
    yield loaded  # type: ignore[misc]
    for source in loaded:
        source.close()


def how(temperature: float) -> Sampling:
    return Sampling(SamplingParams(temperature=temperature), SEED, VOCAB)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_a_target_that_drafts_for_itself_is_always_right(
    models: tuple[LogitSource, LogitSource, LogitSource], temperature: float
) -> None:
    target, same, _ = models
    ids, views = record(target, same, PROMPT, how(temperature), 3 * BLOCK - 5, ())
    assert len(ids) == len(views) == 3 * BLOCK - 5
    assert {view.rank for view in views} == {0}
    assert all(view.overlap == pytest.approx(1.0, abs=1e-5) for view in views)
    assert [view.guesses[0] for view in views] == ids
    if temperature == 0.0:
        assert all(view.likely for view in views)
    else:
        assert 0 < sum(view.likely for view in views) < len(views)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_text_is_plain_decoding_whatever_drafts(
    models: tuple[LogitSource, LogitSource, LogitSource], temperature: float
) -> None:
    target, _, other = models
    ids, _ = record(target, other, PROMPT, how(temperature), 40, ())
    path = list(PROMPT)
    for _ in range(40):
        row = target.logits_after(path, never)
        assert row is not None
        path.append(
            sampling.sample(row, how(temperature).params, SEED, len(path), prefix=path, prompt_len=40, vocab_size=VOCAB)
        )
    assert ids == path[40:]
    stop = ids[35]
    assert record(target, other, PROMPT, how(temperature), 40, {stop})[0] == ids[: ids.index(stop) + 1]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 2.0])
def test_a_view_is_what_brute_force_says(temperature: float) -> None:
    dice = np.random.default_rng(3)
    for trial in range(40):
        own, theirs = (dice.normal(0, 3, VOCAB + 10).astype(np.float32) for _ in range(2))
        path = [int(t) for t in dice.integers(0, VOCAB, 50 + trial)]
        view = viewed(own, theirs, path, how(temperature), 40)
        position, token = len(path) - 1, path[-1]
        scale = temperature or 1.0
        q, p = (np.exp(row[:VOCAB].astype(np.float64) / scale) for row in (own, theirs))
        q, p = q / q.sum(), p / p.sum()
        scores = np.log(q) + (noise.gumbel(SEED, position, VOCAB) if temperature else 0.0)
        order = np.argsort(-scores, kind="stable")
        rank = int(np.flatnonzero(order == token)[0])
        assert view.rank == min(rank, DEEPEST_RANK)
        assert view.guesses == tuple(order[:SIBLINGS].tolist())
        np.testing.assert_allclose(view.chances, q[order[:SIBLINGS]], rtol=1e-4)
        np.testing.assert_allclose(view.gaps, scores[order[0]] - scores[order[:SIBLINGS]], atol=1e-3)
        assert view.overlap == (pytest.approx(np.minimum(p, q).sum(), abs=1e-4) if temperature else float(rank == 0))
        assert view.likely == (int(q.argmax()) == token)


def some_trace(length: int = 50, **changes: object) -> Trace:
    dice = np.random.default_rng(length)
    ids = dice.integers(0, VOCAB, length).tolist()
    views = [
        View(int(r), tuple(range(SIBLINGS)), (0.123449, *[0.01] * 7), (0.0, *[1.234] * 7), 0.87654, bool(r % 2))
        for r in dice.integers(0, 65, length)
    ]
    return replace(as_trace(SOURCE, ids, views), **changes)  # type: ignore[arg-type]


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    traces = [some_trace(), some_trace(3, source=replace(SOURCE, temperature=0.0, ended=True))]
    path = tmp_path / "deep" / "t.jsonl.zst"
    write_traces(path, traces)
    again = read_traces(path)
    assert [trace.source for trace in again] == [trace.source for trace in traces]
    assert [(t.ids, t.ranks, t.guesses, t.likeliest) for t in again] == [
        (t.ids, t.ranks, t.guesses, t.likeliest) for t in traces
    ]
    assert again[0].chances[0] == (0.1234, *[0.01] * 7)
    assert again[0].gaps[0] == (0.0, *[1.23] * 7)
    assert again[0].overlaps[0] == 0.8765
    assert list(path.parent.iterdir()) == [path]


def test_the_replay_backend_and_drafter_read_it(tmp_path: Path) -> None:
    trace = some_trace()
    write_traces(tmp_path / "t.jsonl.zst", [trace])
    (recording,) = read_recordings(tmp_path / "t.jsonl.zst")
    assert (recording.ids, recording.ranks) == (trace.ids, trace.ranks)
    assert recording.probabilities == tuple(round(chances[0], 4) for chances in trace.chances)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.zst"
    with pytest.raises(UsageError, match=r"cannot read .*t\.jsonl\.zst"):
        read_traces(path)
    write_traces(path, [some_trace()])
    whole = path.read_bytes()
    text = zstandard.ZstdDecompressor().decompress(whole).decode()
    for spoilt in (
        whole[: len(whole) // 2],
        b"{}",
        zstandard.compress(text.replace(FORMAT, "acespec-trace-99").encode()),
        zstandard.compress(text.replace('"ranks"', '"tanks"').encode()),
        zstandard.compress(json.dumps(json.loads(text) | {"ranks": [1]}).encode()),
    ):
        path.write_bytes(spoilt)
        with pytest.raises(UsageError, match="record it again"):
            read_traces(path)
    with pytest.raises(UsageError, match="cannot write"):
        write_traces(path / "below a file", [some_trace()])
    with pytest.raises(ValueError, match="different length"):
        some_trace(5, ranks=(1,))


def test_prompts_from_files_of_several_forms(tmp_path: Path) -> None:
    rows = [
        {"question_id": 81, "category": "writing", "turns": ["Compose.", "Again."]},
        {"prompt": "def f():", "task_id": "H/0"},
        {"question": "How many?", "category": "math"},
        {"text": "Say it.", "category": "writing"},
    ]
    file, packed = tmp_path / "mine.jsonl", tmp_path / "packed.jsonl.gz"
    data = "\n".join(json.dumps(row) for row in rows).encode()
    file.write_bytes(data + b"\n\n")
    packed.write_bytes(gzip.compress(data))
    prompts = load_prompts(str(file))
    assert [(p.name, p.category, p.text) for p in prompts] == [
        ("81", "writing", "Compose."),
        ("H/0", "all", "def f():"),
        ("3", "math", "How many?"),
        ("4", "writing", "Say it."),
    ]
    assert {p.prompt_set for p in prompts} == {"mine"}
    assert [p.text for p in load_prompts(f"{packed}:1")] == ["Compose.", "def f():", "How many?"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no prompts"),
        (b'{"prompt": "a"}\nnonsense', "line 2"),
        (b'{"other": "a"}', "line 1.*prompt"),
        (b'{"turns": []}', "line 1"),
        (b"[1]", "line 1"),
        (b"\xff\xfe", "humaneval, gsm8k, mtbench"),
    ],
)
def test_bad_prompt_files_are_explained(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        load_prompts(str(file))
    with pytest.raises(UsageError, match="name one of"):
        load_prompts(str(tmp_path / "none.jsonl"))


def test_the_command_records_a_pair(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACESPEC_CACHE", str(tmp_path / "cache"))
    target, drafter = write_tiny_gguf(folder / "a.gguf"), write_tiny_gguf(folder / "b.gguf", seed=2)
    (tmp_path / "p.jsonl").write_text('{"prompt": "Why is the river low?"}\n{"prompt": "Where does it end?"}\n')
    out = tmp_path / "t.jsonl.zst"
    prompts = str(tmp_path / "p.jsonl")
    arguments = f"record --target {target} --drafter {drafter} --prompts {prompts} --temp 0 --temp 1 -m 12 -o {out}"
    done = subprocess.run(
        [sys.executable, "-c", "from acespec.sim.cli import main; main()", *arguments.split()],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "2/2 p 2 (all), T=1: 12 tokens" in done.stderr
    traces = read_traces(out)
    assert [(t.source.prompt, t.source.temperature) for t in traces] == [("1", 0), ("1", 1), ("2", 0), ("2", 1)]
    assert all(len(t) == 12 for t in traces)
    assert traces[0].source.target == "a.gguf, gguf"
    options = RecordOptions(str(target), str(drafter), (prompts,), (1.0,), max_tokens=12)
    again = record_to(out, options, lambda line: None)
    assert [t.ids for t in again] == [traces[1].ids, traces[3].ids]
    with pytest.raises(UsageError, match="raise --max-kv-size above"):
        record_to(out, replace(options, max_kv=32), print)


def test_a_pair_of_two_families_is_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.tiny import tiny_model_folder

    pytest.importorskip("torch")
    monkeypatch.setenv("ACESPEC_CACHE", str(tmp_path / "cache"))
    other = tiny_model_folder(tmp_path / "other", vocab=300)
    (tmp_path / "p.jsonl").write_text('{"prompt": "Why?"}')
    options = RecordOptions(
        str(write_tiny_gguf(folder / "c.gguf")), str(other), (str(tmp_path / "p.jsonl"),), drafter_runtime="torch"
    )
    with pytest.raises(Mismatch, match="one family"):
        record_to(tmp_path / "t", options, print)
