"""The llama.cpp drafter alone: what cannot be loaded, wrong kernels, its own log."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np
import pytest

from acespec.edge.drafters.base import TurnContext, never
from acespec.edge.drafters.gguf_drafter import GgufDrafter, load_gguf
from acespec.proto.errors import ModelError, UnsupportedModel, UsageError
from acespec.proto.sampling_params import SamplingParams
from tests.models.tiny_gguf import write_tiny_gguf

pytest.importorskip("ik_llama_cpp")
TURN = TurnContext(SamplingParams(), 1, 3, 512)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def test_a_missing_or_broken_file_is_named(gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        GgufDrafter(tmp_path / "nowhere.gguf").begin(TURN)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(gguf.read_bytes()[:5000])
    with pytest.raises(ModelError, match=r"broken\.gguf"):
        GgufDrafter(broken).begin(TURN)


def test_a_library_that_does_not_load_is_explained(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acespec.edge.drafters.gguf_state", None)
    with pytest.raises(UsageError, match="--drafter ngram"):
        GgufDrafter(gguf).begin(TURN)


def test_recurrent_state_is_refused(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B15."""
    from acespec.edge.drafters import gguf_state

    monkeypatch.setattr(gguf_state._library, "llama_model_is_recurrent", lambda model: True)
    with pytest.raises(UnsupportedModel, match="plain attention"):
        load_gguf(gguf, 256)


def test_wide_passes_that_are_wrong_are_avoided(
    gguf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Planted: passes of 32 and more ids give noise, as version 0.1.5 does with some number formats."""
    from acespec.edge.drafters import gguf_state

    honest = gguf_state.GgufState._feed

    def faulty(self: gguf_state.GgufState, ids: list[int], rows: int) -> gguf_state.Rows:
        logits = honest(self, ids, rows)
        return logits if len(ids) < 32 else np.random.default_rng(0).standard_normal(logits.shape).astype(np.float32)

    right = load_gguf(gguf, 256)
    monkeypatch.setattr(gguf_state.GgufState, "_feed", faulty)
    with caplog.at_level(logging.INFO):
        careful = load_gguf(gguf, 256)
    path = [3 + i % 500 for i in range(200)]
    ours, theirs = careful.logits_after(path, never), right.logits_after(path, never)
    assert (careful.widest_pass, right.widest_pass) == (16, 512)
    assert ours is not None
    assert theirs is not None
    assert ours.argmax() == theirs.argmax()
    assert "wrongly" in caplog.text


def test_llama_cpp_talks_to_our_log_only(
    gguf: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        load_gguf(gguf, 256).close()
    assert "llama.cpp: " in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert capfd.readouterr() == ("", "")


@pytest.mark.model
@pytest.mark.slow
def test_the_default_models_file_drafts_like_its_converted_weights() -> None:
    """The quantised file and its float32 conversion agree on nearly every greedy token."""
    torch = pytest.importorskip("torch")
    from acespec.edge.drafters.torch_drafter import load_torch
    from acespec.models.gguf_models import gguf_file, gguf_tokenizer
    from acespec.models.store import resolve

    file = gguf_file("smollm2-135m")
    path = gguf_tokenizer(file).encode("The capital of France is Paris, and the capital of Italy is Rome. " * 3)
    torch.set_num_threads(1)
    ours, theirs = load_gguf(file, 512), load_torch(resolve("smollm2-135m", offline=True), 512)
    rows = list(zip(ours.rows(path, 1), theirs.rows(path, 1), strict=True))
    assert sum(a.argmax() == b.argmax() for a, b in rows) >= 0.9 * len(rows)
