"""Read a checkpoint's tensors by name from one safetensors file or a sharded set, as floats or as 4-bit codes.

Tensors are read one at a time, so that peak memory stays near one copy of the model while the linear layers are
packed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from acespec.cloud.torch_backend.quantization_config import Quantization
from acespec.cloud.torch_backend.quantized import Quantized, packed_shapes, unpack
from acespec.proto.errors import ModelNotFound, UnsupportedModel

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class Checkpoint:
    """Tensors of a model folder, found by name."""

    def __init__(self, folder: Path, quantization: Quantization | None = None) -> None:
        """Find the tensors of `folder`; `quantization` is what its config says of 4-bit weights.

        Raises `ModelNotFound` or `UnsupportedModel` if the weight files are missing or unreadable.
        """
        self._file_of = dict(_tensor_files(folder))
        self._quantization = quantization

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def tensor(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The tensor `name` as contiguous floats of the given shape, in memory of its own.

        `<module>.weight` may also be stored in 4 bits: then its values are those of `Quantized.dequantized`. Raises
        `UnsupportedModel` if it is missing, of another shape or no float.
        """
        module = name.removesuffix(".weight")
        quantized = self.codes(module, *shape) if module != name and len(shape) == 2 else None
        if quantized is not None:
            return quantized.dequantized().to(dtype)
        stored = self._stored(name, *shape)
        if stored.dtype not in _FLOATS:
            raise UnsupportedModel(f"{name} is {stored.dtype}; only float32, float16 and bfloat16 are served")
        return stored.to(dtype, copy=True).contiguous()

    def any_shape(self, name: str) -> torch.Tensor:
        """The tensor `name` as it is stored."""
        with _opened(self._file_of[name]) as file:
            stored: torch.Tensor = file.get_tensor(name)
        return stored

    def optional(self, name: str, *shape: int) -> torch.Tensor | None:
        """Like `tensor` in float32, or None if the checkpoint has none of that name."""
        return self.tensor(name, *shape) if name in self else None

    def codes(self, module: str, outputs: int, inputs: int) -> Quantized | None:
        """The weight of `module` (such as `model.layers.0.mlp.up_proj`) in 4 bits; None if it is stored as floats.

        Raises `UnsupportedModel` if it is of another shape or not what the config's quantization says.
        """
        if f"{module}.qweight" not in self:
            return None
        if self._quantization is None:
            raise UnsupportedModel(
                f"{module} is stored in 4 bits, but config.json has no quantization_config; fetch the model again"
            )
        shapes = packed_shapes(self._quantization, module, outputs, inputs)
        if f"{module}.g_idx" in self:
            shapes["g_idx"] = (inputs,)
        parts = {part: self._stored(f"{module}.{part}", *shape) for part, shape in shapes.items()}
        return unpack(self._quantization, module, parts)

    def _stored(self, name: str, *shape: int) -> torch.Tensor:
        if name not in self._file_of:
            raise UnsupportedModel(f"the checkpoint has no tensor {name}; it is not a model of this family")
        stored = self.any_shape(name)
        if tuple(stored.shape) != shape:
            raise UnsupportedModel(f"{name} has shape {tuple(stored.shape)}; config.json asks for {shape}")
        return stored


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model folder, sorted by name. Raises `ModelNotFound` if there are none."""
    return sorted(set(dict(_tensor_files(folder)).values()))


def _tensor_files(folder: Path) -> Iterator[tuple[str, Path]]:
    if (folder / INDEX).exists():
        for name, file in _weight_map(folder / INDEX).items():
            yield name, folder / file
    elif (folder / SINGLE).exists():
        with _opened(folder / SINGLE) as file:
            for name in file.keys():  # noqa: SIM118 (a safetensors handle is no mapping)
                yield name, folder / SINGLE
    else:
        raise ModelNotFound(f"{folder} has neither {SINGLE} nor {INDEX}; fetch or convert the model first")


def _weight_map(index: Path) -> dict[str, str]:
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {str(name): Path(str(file)).name for name, file in weight_map.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnsupportedModel(f"{index} is no weight index ({error!r}); fetch the model again") from None


def _opened(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (OSError, SafetensorError) as error:
        raise UnsupportedModel(f"{path} is no readable safetensors file ({error}); fetch it again") from None
