"""Tiny 4-bit checkpoints: a float folder of `tests.tiny` rounded to codes and written as AWQ or GPTQ tools do.

Plain NumPy and Python, written from the formats' descriptions and apart from the code that reads them: words are put
together code by code, and a weight's value is rounded to bfloat16 on its bits.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

Layout = Literal["awq", "gptq", "gptq_v2"]
Codes = NDArray[np.uint8]
Words = NDArray[np.int32]
Tensors = dict[str, NDArray[np.generic]]

AWQ_OUTPUTS = (0, 2, 4, 6, 1, 3, 5, 7)
IN_ORDER = (0, 1, 2, 3, 4, 5, 6, 7)


@dataclass(frozen=True, slots=True)
class Rounded:
    """A weight in 4 bits: codes uint8[N, K]; scales float16[N, K/g] and zeros uint8[N, K/g] of groups of g inputs."""

    codes: Codes
    scales: NDArray[np.float16]
    zeros: Codes

    @property
    def group(self) -> int:
        return self.codes.shape[1] // self.scales.shape[1]

    def values(self) -> NDArray[np.float32]:
        """float32[N, K]: (code - zero) * scale, rounded to bfloat16."""
        zeros = np.repeat(self.zeros.astype(np.float32), self.group, axis=1)
        scales = np.repeat(self.scales.astype(np.float32), self.group, axis=1)
        return to_bfloat16((self.codes.astype(np.float32) - zeros) * scales)


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nearest bfloat16 numbers, ties to even, as float32."""
    bits = values.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    kept: NDArray[np.uint32] = (bits + np.uint32(0x7FFF) + odd) & np.uint32(0xFFFF0000)
    return kept.view(np.float32)


def round_weight(weight: NDArray[np.float32], group: int, *, symmetric: bool = False) -> Rounded:
    """Round float32[N, K] to the nearest codes. Zeros are 1 .. 15, or all 8: what every layout can hold."""
    outputs, inputs = weight.shape
    grouped = weight.reshape(outputs, inputs // group, group)
    low, high = grouped.min(2), grouped.max(2)
    if symmetric:
        scales = (np.maximum(-low, high) / 7.5).astype(np.float16)
        zeros = np.full(scales.shape, 8, np.uint8)
    else:
        scales = ((high - low) / 15).astype(np.float16)
        zeros = np.clip(np.rint(-low / scales), 1, 15).astype(np.uint8)
    codes = np.clip(np.rint(grouped / scales[..., None]) + zeros[..., None], 0, 15).astype(np.uint8)
    return Rounded(codes.reshape(outputs, inputs), scales, zeros)


def pack(rounded: Rounded, layout: Layout) -> Tensors:
    """The tensors of one module, without their prefix."""
    by_group = rounded.zeros.T
    if layout == "awq":
        packed: Tensors = {
            "qweight": words(rounded.codes.T, AWQ_OUTPUTS),
            "qzeros": words(by_group, AWQ_OUTPUTS),
        }
    else:
        stored = by_group - np.uint8(layout == "gptq")
        groups = np.arange(rounded.codes.shape[1], dtype=np.int32) // rounded.group
        packed = {
            "qweight": np.ascontiguousarray(words(rounded.codes, IN_ORDER).T),
            "qzeros": words(stored, IN_ORDER),
            "g_idx": groups.astype(np.int32),
        }
    return {**packed, "scales": np.ascontiguousarray(rounded.scales.T)}


def words(codes: Codes, order: Sequence[int]) -> Words:
    """uint8[R, 8 C] -> int32[R, C]: of each eight codes, the one that `order` names for a nibble, lowest bits first."""
    eights = codes.reshape(codes.shape[0], -1, 8)
    packed = np.zeros(eights.shape[:2], np.uint32)
    for nibble, place in enumerate(order):
        packed |= eights[:, :, place].astype(np.uint32) << np.uint32(4 * nibble)
    return packed.view(np.int32)


def settings_of(layout: Layout, group: int, **more: object) -> dict[str, object]:
    """The `quantization_config` that AutoAWQ or GPTQModel would write."""
    if layout == "awq":
        own: dict[str, object] = {"quant_method": "awq", "version": "gemm", "zero_point": True}
    else:
        own = {"quant_method": "gptq", "checkpoint_format": layout, "desc_act": False, "sym": False, "lm_head": False}
    return {"bits": 4, "group_size": group, **own, **more}


def is_projection(name: str) -> bool:
    """Whether `name` is a weight that these tools quantise: the seven projections of a layer."""
    return name.endswith("_proj.weight")


def quantized_folder(
    source: Path,
    target: Path,
    layout: Layout,
    *,
    group: int = 32,
    symmetric: bool = False,
    chosen: Callable[[str], bool] = is_projection,
    settings: dict[str, object] | None = None,
) -> Path:
    """Copy a float folder to `target` with the weights that `chosen` picks by name in 4 bits; other floats as float16.

    `group` may be -1; `settings` are added to `quantization_config`.
    """
    tensors: Tensors = {}
    for name, value in _half(source).items():
        if not chosen(name):
            tensors[name] = value
            continue
        rounded = _round(value, group, symmetric)
        tensors |= {f"{name.removesuffix('weight')}{part}": stored for part, stored in pack(rounded, layout).items()}
    table = settings_of(layout, group, **({"sym": symmetric} if layout != "awq" else {}), **(settings or {}))
    return _written(source, target, tensors, quantization_config=table)


def rounded_folder(
    source: Path,
    target: Path,
    *,
    group: int = 32,
    symmetric: bool = False,
    chosen: Callable[[str], bool] = is_projection,
) -> Path:
    """The float checkpoint of the values that `quantized_folder` with the same arguments stores."""
    tensors: Tensors = {
        name: _round(value, group, symmetric).values() if chosen(name) else value
        for name, value in _half(source).items()
    }
    return _written(source, target, tensors)


def _half(source: Path) -> Tensors:
    return {name: value.astype(np.float16) for name, value in load_file(source / "model.safetensors").items()}


def _round(value: NDArray[np.generic], group: int, symmetric: bool) -> Rounded:
    weight = value.astype(np.float32)
    return round_weight(weight, weight.shape[1] if group == -1 else group, symmetric=symmetric)


def _written(source: Path, target: Path, tensors: Tensors, **more: object) -> Path:
    shutil.copytree(source, target)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (target / "config.json").write_text(json.dumps({**config, **more}), encoding="utf-8")
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target
