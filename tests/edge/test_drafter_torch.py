"""The torch drafter alone: what cannot be loaded, and layers that cannot be rolled back."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from acespec.edge.drafters.base import TurnContext, never
from acespec.edge.drafters.torch_drafter import TorchDrafter, load_torch
from acespec.proto.errors import ModelError, UnsupportedModel, UsageError
from acespec.proto.sampling_params import SamplingParams
from tests.tiny import tiny_model_folder

pytest.importorskip("torch")
TURN = TurnContext(SamplingParams(), 1, 3, 320)


def edited(folder: Path, **changes: object) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def test_missing_weights_and_unknown_architectures_are_named(tmp_path: Path) -> None:
    bare = tiny_model_folder(tmp_path / "bare", vocab=320)
    (bare / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="bare"):
        TorchDrafter(bare).begin(TURN)
    with pytest.raises(ModelError, match="abacus"):
        TorchDrafter(edited(tiny_model_folder(tmp_path / "odd", vocab=320), model_type="abacus")).begin(TURN)


def test_a_broken_torch_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acespec.edge.drafters.torch_state", None)
    with pytest.raises(UsageError, match="--drafter ngram"):
        TorchDrafter(tmp_path).begin(TURN)


def test_sliding_layers_bound_the_window(tmp_path: Path) -> None:
    """B14: within the sliding window such layers are plain ones."""
    plain = tiny_model_folder(tmp_path / "plain", vocab=320, model_type="qwen3")
    sliding = edited(
        tiny_model_folder(tmp_path / "sliding", vocab=320, model_type="qwen3"),
        use_sliding_window=True,
        sliding_window=33,
        layer_types=["sliding_attention", "full_attention"],
    )
    ours, theirs = load_torch(sliding, 256), load_torch(plain, 256)
    path = [int(t) for t in np.random.default_rng(0).integers(3, 320, 32)]
    for n in (32, 20, 31, 5):
        a, b = ours.logits_after(path[:n], never), theirs.logits_after(path[:n], never)
        assert a is not None
        assert b is not None
        np.testing.assert_allclose(a, b, atol=2e-4)
    with pytest.raises(ValueError, match="window of 32"):
        next(iter(ours.rows([3] * 33, 1)))


def test_layers_of_another_kind_are_refused(tmp_path: Path) -> None:
    """B15."""
    from types import SimpleNamespace

    from acespec.edge.drafters.torch_state import _window

    config = SimpleNamespace(max_position_embeddings=512, layer_types=["full_attention", "linear_attention"])
    with pytest.raises(UnsupportedModel, match="linear_attention"):
        _window(tmp_path, config, 256)
