"""The engine computes what transformers computes, up to rounding."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from acespec.cloud.torch_backend.runner import TorchRunner
from tests.cloud.torch_runners import VOCAB, in_chunks, text, tiny_folder
from tests.tiny import ModelType

transformers = pytest.importorskip("transformers")


def reference(folder: Path, tokens: list[int]) -> NDArray[np.float32]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits: NDArray[np.float32] = model(torch.tensor([tokens])).logits[0].numpy()
    return logits


def largest_difference(folder: Path, length: int = 200) -> float:
    runner = TorchRunner.load(folder, vocab_size=VOCAB)
    tokens = text(length)
    return float(np.abs(in_chunks(runner, tokens, [50]) - reference(folder, tokens)).max())


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_logits_equal_those_of_transformers(family: ModelType) -> None:
    assert largest_difference(tiny_folder(family)) < 1e-4


def test_llama3_rope_scaling_equals_that_of_transformers(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    folder = _edited(tiny_folder("llama"), tmp_path, rope_scaling=scaling)
    assert largest_difference(folder) < 1e-4
    assert abs(reference(folder, text(200)) - reference(tiny_folder("llama"), text(200))).max() > 0.1


def test_a_sharded_bfloat16_checkpoint_loads(tmp_path: Path) -> None:
    folder = _edited(tiny_folder("qwen2"), tmp_path)
    tensors = {k: v.to(torch.bfloat16) for k, v in load_file(folder / "model.safetensors").items()}
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, members in shards.items():
        save_file({name: tensors[name] for name in members}, folder / file, metadata={"format": "pt"})
    weight_map = {name: file for file, members in shards.items() for name in members}
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert largest_difference(folder) < 1e-4


def test_output_biases_of_attention_count(tmp_path: Path) -> None:
    """Llama's optional attention_bias covers q, k, v and o."""
    folder = _edited(tiny_folder("llama"), tmp_path, attention_bias=True)
    tensors = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    for name in [n for n in tensors if "self_attn" in n and n.endswith(".weight")]:
        rows = tensors[name].shape[0]
        tensors[name.replace(".weight", ".bias")] = torch.randn(rows, generator=generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert largest_difference(folder) < 1e-4


def _edited(source: Path, target: Path, **settings: object) -> Path:
    folder = target / "model"
    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, **settings}), encoding="utf-8")
    return folder
