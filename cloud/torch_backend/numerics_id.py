"""The name of everything besides prefix, position, seed and parameters that decides the bits of a logit row.

Two verifiers with the same name give the same bits. It covers the weights (SHA-256 of every file: about a second
a gigabyte, less than reading them), how they are computed (dtype, device, library version, instruction set,
threads, tiles, row rules), the grammar library, the noise version, and the bits of a probe text, which catch whatever
the list does not name, such as cache sizes that a library's blocking depends on.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from acespec.cloud.runner import PAGE
from acespec.cloud.torch_backend.config import ModelConfig
from acespec.cloud.torch_backend.model import Model
from acespec.cloud.torch_backend.weights import weight_files
from acespec.proto.noise import NOISE_VERSION

ARITHMETIC = 1
"""Raised when the code of this backend changes the bits."""


def numerics_id(folder: Path, model: Model, vocab_size: int, threads: int, probe: bytes) -> str:
    """A short name such as `torch-cpu-float32-6f0c..`."""
    facts = {
        **checkpoint_facts(folder, model.config, vocab_size),
        "torch": torch.__version__,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "kv_tile": PAGE,
        "row_rules": model.rules.table(),
        "arithmetic": ARITHMETIC,
        "probe": hashlib.sha256(probe).hexdigest(),
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"torch-cpu-float32-{digest[:16]}"


def checkpoint_facts(folder: Path, config: ModelConfig, vocab_size: int) -> dict[str, object]:
    """What decides the bits on every device: the weights, what the config says of them, noise and grammars."""
    return {
        "weights": [_file_hash(file) for file in weight_files(folder)],
        "config": {**asdict(config), "max_length": 0},
        "vocab_size": vocab_size,
        "grammar": grammar_library(),
        "noise": NOISE_VERSION,
    }


def grammar_library() -> str | None:
    """The version of the library that masks rows under an output format; None if there is none."""
    try:
        return version("llguidance")
    except PackageNotFoundError:
        return None


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
