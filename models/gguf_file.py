"""Read a GGUF file's facts and tensors, with one clear error for anything that is not a whole GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from acespec.proto.errors import IntegrityError, ModelNotFound, UnsupportedModel

if TYPE_CHECKING:
    from gguf import GGUFReader, ReaderTensor

T = TypeVar("T")
Value = str | int | float | bool | list[str] | list[int] | list[float] | list[bool]


class GgufFile:
    """A GGUF file: metadata by key, tensors in file order, dequantised one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = _open(path)
        self._decoded: dict[str, Value] = {}
        self.tensors: dict[str, ReaderTensor] = {tensor.name: tensor for tensor in self._reader.tensors}
        self.architecture = self.text("general.architecture")

    def get(self, key: str) -> Value | None:
        """The value of `key`, or None where the file has none. `{arch}` in a key is the architecture."""
        if "{arch}" in key:
            key = key.replace("{arch}", self.architecture)
        field = self._reader.get_field(key)
        if field is None:
            return None
        if key not in self._decoded:
            self._decoded[key] = field.contents()
        return self._decoded[key]

    def text(self, key: str, default: str | None = None) -> str:
        """The string at `key`. Raises UnsupportedModel if it is missing without a default, or not a string."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        return self._expect(key, value, str)

    def integer(self, key: str, default: int | None = None) -> int:
        """The integer at `key`; errors as for `text`."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        return self._expect(key, value, int)

    def number(self, key: str, default: float | None = None) -> float:
        """The float32 at `key`, as the shortest decimal that rounds to it (1e-05 rather than 9.9999997e-06)."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        return float(str(np.float32(self._expect(key, value, (int, float)))))

    def strings(self, key: str) -> list[str]:
        """The list of strings at `key`; errors as for `text`."""
        return [self._expect(key, item, str) for item in self._expect(key, self.get(key), list)]

    def integers(self, key: str) -> list[int]:
        """The list of integers at `key`; errors as for `text`."""
        return [self._expect(key, item, int) for item in self._expect(key, self.get(key), list)]

    def shape(self, name: str) -> tuple[int, ...]:
        """Rows first, as NumPy and torch have it (GGUF itself stores the fastest axis first)."""
        return tuple(int(size) for size in reversed(self.tensors[name].shape))

    def dequantised(self, name: str) -> NDArray[np.float32]:
        """The tensor's values in float32, in `shape(name)`. Raises UnsupportedModel for an unknown format."""
        from gguf.quants import dequantize

        tensor = self.tensors[name]
        try:
            values: NDArray[np.float32] = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as fault:
            raise UnsupportedModel(
                f"{self.path.name} stores {name} as {tensor.tensor_type.name}, which cannot be read here: "
                "take a Q4_0, Q4_1, Q5_x, Q8_0, K-quant, F16, BF16 or F32 file"
            ) from fault
        return values.reshape(self.shape(name)).astype(np.float32, copy=False)

    def _expect(self, key: str, value: object, kind: type[T] | tuple[type[T], ...]) -> T:
        if isinstance(value, kind):
            return value
        what = "is missing" if value is None else f"holds {type(value).__name__}"
        raise UnsupportedModel(f"{self.path.name} cannot be converted: its GGUF key {key} {what}")


def _open(path: Path) -> GGUFReader:
    from gguf import GGUFReader

    try:
        return GGUFReader(path)
    except OSError as fault:
        raise ModelNotFound(f"{path} cannot be read ({fault.strerror}): check the path and its permissions") from fault
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as fault:
        raise IntegrityError(
            f"{path} is not a whole GGUF file ({type(fault).__name__}: {fault}): fetch it again"
        ) from fault
