"""Many small arrays that travel to the device in one copy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

ALIGNMENT = 16
"""Bytes; kernels are compiled for pointers that divide by it."""

_TORCH = {np.dtype(np.int32): torch.int32, np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}

Array = NDArray[Any]


class Arena:
    """Named arrays side by side in one buffer, on the host and on the device.

    Attributes:
        host: the host's arrays, to be written before `send`.
        device: the device's, which kernels read.
    """

    def __init__(self, empty: Mapping[str, Array], device: torch.device) -> None:
        """`empty`: each array as it is when nothing was put in: its dtype, its shape and its resting values."""
        offsets, size = {}, 0
        for name, array in empty.items():
            offsets[name] = size
            size += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        self._staged = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._landed = torch.empty(size, dtype=torch.uint8, device=device)
        bytes_ = self._staged.numpy()
        self.host = {
            name: bytes_[offsets[name] : offsets[name] + array.nbytes].view(array.dtype).reshape(array.shape)
            for name, array in empty.items()
        }
        self.device = {name: self._view(offsets[name], array) for name, array in empty.items()}
        for name, array in empty.items():
            self.host[name][...] = array
        self._resting = bytes_.copy()
        self.send()

    def put(self, name: str, values: Array) -> None:
        """Write `values` at the start of an array."""
        self.host[name][: len(values)] = values

    def rest(self) -> None:
        """Make all arrays empty again."""
        np.copyto(self._staged.numpy(), self._resting)

    def send(self) -> None:
        """Copy everything; the device sees it before whatever is started next."""
        self._landed.copy_(self._staged, non_blocking=True)

    def _view(self, offset: int, like: Array) -> torch.Tensor:
        dtype = _TORCH[like.dtype]
        size = math.prod(like.shape)
        return self._landed[offset : offset + size * like.itemsize].view(dtype).view(like.shape)


class Rows:
    """A table of which only the first rows are sent."""

    def __init__(self, rows: int, columns: int, device: torch.device) -> None:
        self._staged = torch.zeros((rows, columns), dtype=torch.int32, pin_memory=device.type == "cuda")
        self.device = torch.zeros((rows, columns), dtype=torch.int32, device=device)

    @property
    def size(self) -> int:
        """Rows that it can hold."""
        return len(self._staged)

    def send(self, values: NDArray[np.int32]) -> None:
        """Copy int32[n, up to columns] to the first rows; what else stands there is left."""
        rows, columns = values.shape
        self._staged.numpy()[:rows, :columns] = values
        self.device[:rows].copy_(self._staged[:rows], non_blocking=True)
