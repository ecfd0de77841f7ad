"""Kernels of a few lines that the gates are tried on: good ones, and ones that each break one gate."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from acespec.kernels.ahead_case import AheadCase, Gate
from tests.kernels.launch_keys import on_gpu


def _scale(x, out, rows, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    live = (at < width) & (row < rows)
    result = tl.load(x + row * width + at, mask=live, other=0.0) * 3.0 + 1.0
    tl.store(out + rows + row * width + at, result, mask=live)


scale = triton.jit(_scale, do_not_specialize=["rows"], do_not_specialize_on_alignment=["rows"])
scale_if_one = triton.jit(_scale, do_not_specialize_on_alignment=["rows"])
scale_if_aligned = triton.jit(_scale, do_not_specialize=["rows"])
scale_careless = triton.jit(_scale)


@triton.jit
def twice(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * 2.0)


@triton.jit
def twice_by_another_name(source, result, BLOCK: tl.constexpr):
    """The same machine code, but for what it is called."""
    place = tl.arange(0, BLOCK)
    tl.store(result + place, tl.load(source + place) * 2.0)


@triton.jit
def crowded(x, out, BLOCK: tl.constexpr):
    """Needs all values at once, more than a thread has registers."""
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at)
    tl.debug_barrier()
    tl.store(out + at, value / tl.sum(value))


def launch_scale(kernel: object, x: torch.Tensor, out: torch.Tensor) -> None:
    """out = 3 x + 1 for [rows, width], behind a number for each row."""
    rows, width = x.shape
    kernel[(rows,)](x, out, rows, width, BLOCK=1024, num_warps=4, num_stages=2, enable_fp_fusion=False)  # type: ignore[index]


def small_case(
    kernel: object,
    gate: Gate,
    *,
    fusion: bool = False,
    block: int = 1024,
    warps: int = 4,
    aligned: tuple[str, ...] = (),
    one: tuple[str, ...] = (),
) -> AheadCase:
    """A kernel from one pointer to another, then numbers, then BLOCK; those in `one` are compiled as the number 1."""
    names: list[str] = kernel.arg_names  # type: ignore[attr-defined]
    numbers = {name: "i32" for name in names[2:-1] if name not in one}
    return AheadCase(
        name=names[0],
        kernel=kernel,
        signature=dict.fromkeys(names[:2], "*fp32") | numbers,
        constants={"BLOCK": block} | dict.fromkeys(one, 1),
        aligned=(*names[:2], *(name for name in numbers if name == "width"), *aligned),
        options={"num_warps": warps, "num_stages": 2, "enable_fp_fusion": fusion},
        gate=gate,
        floor="none",
        design="none",
    )


def _launch(kernel: object) -> Callable[[int], None]:
    return lambda rows: launch_scale(kernel, on_gpu(rows, 64), on_gpu(rows + rows * 64))


CASES = {
    "good": small_case(scale, Gate(32, at_least={"LDG": 2, "STG": 2}, none=("FFMA", "HGMMA"))),
    "fused": small_case(scale, Gate(32, none=("FFMA",)), fusion=True),
    "greedy": small_case(scale, Gate(8)),
    "no matrix unit": small_case(scale, Gate(32, at_least={"HGMMA": 1})),
    "crowded": small_case(crowded, Gate(255), block=16384, warps=1),
    "twice": small_case(twice, Gate(32)),
    "twice by another name": small_case(twice_by_another_name, Gate(32)),
    "for one row": small_case(scale_careless, Gate(32), one=("rows",)),
    "for aligned rows": small_case(scale_careless, Gate(32), aligned=("rows",)),
    "for any rows": small_case(scale_careless, Gate(32)),
}
LAUNCHES = {
    "scale": _launch(scale),
    "scale_if_aligned": _launch(scale_if_aligned),
    "scale_if_one": _launch(scale_if_one),
    "scale_careless": _launch(scale_careless),
}
