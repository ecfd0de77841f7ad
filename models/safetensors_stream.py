"""Write a safetensors file one tensor at a time.

The library's own writer wants all tensors in memory at once; a dequantised model may not fit. The format is an
8-byte little-endian length, a JSON header with shapes and byte ranges, then the data in the order of the header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 8
BYTES_PER_VALUE = 4


class Float32Writer:
    """A safetensors file of float32 tensors whose shapes are known before their values.

    Tensors are written in the order of `shapes`; the file is complete when the `with` block ends.
    """

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._path = path
        self._waiting = list(shapes.items())
        self._waiting.reverse()
        self._header = _header(shapes)

    def __enter__(self) -> Self:
        self._file = self._path.open("wb")
        self._file.write(len(self._header).to_bytes(8, "little") + self._header)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if kind is None and self._waiting:
            raise ValueError(f"{len(self._waiting)} tensors were announced and not written")

    def write(self, name: str, values: NDArray[np.float32]) -> None:
        """Append the next tensor. Raises ValueError if it is not the one announced."""
        expected, shape = self._waiting.pop()
        if name != expected or values.shape != shape:
            raise ValueError(f"expected {expected} {shape}, got {name} {values.shape}")
        self._file.write(np.ascontiguousarray(values, dtype="<f4").data)


def _header(shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        size = BYTES_PER_VALUE * int(np.prod(shape))
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % ALIGNMENT)
