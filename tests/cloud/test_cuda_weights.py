"""Checkpoints on the device: what stays in 4 bits, what is unpacked, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from acespec.cloud.cuda_backend.weights import Weights, load_weights
from acespec.cloud.torch_backend.config import read_config
from acespec.cloud.torch_backend.weights import Checkpoint
from acespec.kernels.w4_weight import W4Weight
from acespec.proto.errors import UnsupportedModel
from tests.cloud.cuda_runners import CPU, gpu_runner
from tests.cloud.torch_runners import VOCAB, TorchRunner, block, in_chunks, text
from tests.quantize import Layout, quantized_folder
from tests.tiny import tiny_model_folder


def loaded(folder: Path) -> Weights:
    config = read_config(folder)
    return load_weights(config, Checkpoint(folder, config.quantization), 64, CPU)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tiny_model_folder(tmp_path / "float", vocab=VOCAB, layers=1)


def test_a_float_checkpoint_becomes_bfloat16(source: Path) -> None:
    weights = loaded(source)
    assert all(isinstance(p.weight, torch.Tensor) and p.weight.dtype == torch.bfloat16 for p in weights.products)
    assert weights.head is weights.embedding, "tied"
    bytes_ = sum(2 * p.outputs * p.inputs for p in weights.products) + 2 * VOCAB * 64
    assert weights.step_bytes() == bytes_


@pytest.mark.parametrize("layout", ["awq", "gptq"])
def test_four_bits_stay_four_bits_and_give_the_model_that_the_cpu_runs(
    source: Path, tmp_path: Path, layout: Layout
) -> None:
    folder = quantized_folder(source, tmp_path / layout, layout, group=32)
    runner = gpu_runner(folder)
    assert all(isinstance(p.weight, W4Weight) for p in runner._weights.products)
    packed, plain = (sum(p.nbytes() for p in each.products) for each in (runner._weights, loaded(source)))
    assert packed == plain * 5 / 16, "four bits a weight and 32 for a group of 32"
    tokens = text(4)
    (ours,) = runner.logits([block((30,), 0, tokens)])
    exact = in_chunks(TorchRunner.load(folder, vocab_size=VOCAB), tokens, [4])
    assert np.abs(ours - exact).max() < 0.12 * exact.std()


def test_groups_without_a_kernel_are_unpacked(source: Path, tmp_path: Path) -> None:
    weights = loaded(quantized_folder(source, tmp_path / "small", "awq", group=16))
    assert all(isinstance(p.weight, torch.Tensor) for p in weights.products)


@pytest.mark.parametrize(("value", "refused"), [(0.0, False), (0.5, True)])
def test_a_bias_that_no_kernel_adds_is_refused_unless_it_is_zero(source: Path, value: float, refused: bool) -> None:
    file = source / "model.safetensors"
    tensors = {**load_file(file), "model.layers.0.mlp.down_proj.bias": np.full(64, value, np.float32)}
    save_file(tensors, file, metadata={"format": "pt"})
    if refused:
        with pytest.raises(UnsupportedModel, match=r"down_proj has a bias.*--device cpu"):
            loaded(source)
    else:
        loaded(source)
