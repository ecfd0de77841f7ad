"""The name of everything besides prefix, position, seed and parameters that decides the bits on this device."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import torch
import triton

from acespec.cloud.cuda_backend.weights import Weights
from acespec.cloud.runner import PAGE
from acespec.cloud.torch_backend.numerics_id import checkpoint_facts
from acespec.kernels.attention_plan import PACKED, SPLIT, TILE

ARITHMETIC = 1
"""Raised when the code of this backend or of its kernels changes the bits."""


def numerics_id(folder: Path, weights: Weights, vocab_size: int, wide: bool, probe: bytes, device: torch.device) -> str:
    """A short name such as `triton-sm90-bfloat16-6f0c..`."""
    products = {(p.outputs, p.inputs): asdict(p.narrow) for p in weights.products}
    facts = {
        **checkpoint_facts(folder, weights.config, vocab_size),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "device": _architecture(device),
        "kv_page": PAGE,
        "attention": (TILE, SPLIT, PACKED),
        "products": sorted((shape, tile) for shape, tile in ((str(k), v) for k, v in products.items())),
        "wide": wide,
        "arithmetic": ARITHMETIC,
        "probe": hashlib.sha256(probe).hexdigest(),
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return f"triton-{_architecture(device)}-bfloat16-{digest[:16]}"


def _architecture(device: torch.device) -> str:
    if device.type != "cuda":
        return "interpreter"
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm{major}{minor}"
