"""What Triton would compile for a launch, found by the launch itself, on a machine without a GPU.

Launchers are called as they are, with tensors that take no memory and say that they lie on a GPU. Triton's own launch
path types and specialises the arguments; its hook before compilation writes down the result and stops it there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from acespec.kernels.ahead import HOPPER, Specialisation

OPTIONS = ("num_warps", "num_stages", "enable_fp_fusion")
LEFT_ALONE = {"num_ctas": 1, "maxnreg": None, "launch_cooperative_grid": False, "launch_pdl": False}
"""Options that no launcher sets."""


class _Claims(torch.Tensor):
    """Shape, strides, offset and type of a tensor on a GPU; no contents."""

    is_cuda = True


class _NoDriver:
    """Tells of an H100 and starts nothing."""

    def get_current_target(self) -> GPUTarget:
        return HOPPER

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def on_gpu(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A contiguous tensor that claims to be on a GPU, aligned as torch's allocator does."""
    return claiming(torch.empty(*shape, dtype=dtype, device="meta"))


def claiming(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of torch's device `meta`, made to claim that it is on a GPU."""
    return tensor.as_subclass(_Claims)


@contextmanager
def launches() -> Iterator[list[Specialisation]]:
    """While open, launches are only written down, in order."""
    found: list[Specialisation] = []

    def write_down(*, fn: object, compile: dict[str, object], **_: object) -> bool:
        found.append(_specialisation(fn.jit_function, compile))  # type: ignore[attr-defined]
        return True

    before = knobs.runtime.jit_cache_hook
    driver.set_active(_NoDriver())
    knobs.runtime.jit_cache_hook = write_down
    try:
        yield found
    finally:
        knobs.runtime.jit_cache_hook = before


def launched(launch: Callable[[], None]) -> list[Specialisation]:
    """The launches of one call."""
    with launches() as found:
        launch()
    return found


def _specialisation(kernel: object, compile: dict[str, object]) -> Specialisation:
    names: list[str] = kernel.arg_names  # type: ignore[attr-defined]
    constants: dict[tuple[int], object] = compile["constants"]  # type: ignore[assignment]
    (attributes,) = compile["configs"]  # type: ignore[misc]
    options = json.loads(str(compile["specialization_data"]))["options"]
    if odd := {name: options[name] for name, usual in LEFT_ALONE.items() if options.get(name, usual) != usual}:
        raise AssertionError(f"{kernel} is launched with {odd}, which no case tells the compiler")
    return Specialisation(
        kernel.__name__,  # type: ignore[attr-defined]
        tuple((name, kind) for name, kind in compile["signature"].items() if kind != "constexpr"),  # type: ignore[attr-defined]
        tuple((names[path[0]], value) for path, value in constants.items()),
        tuple(names[path[0]] for path, facts in attributes.items() if ["tt.divisibility", 16] in facts),
        tuple((name, options[name]) for name in OPTIONS),
    )
