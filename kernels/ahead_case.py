"""What the ahead-of-time compiler has to be told of a kernel, and what its machine code must look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Gate:
    """What the machine code must keep.

    Attributes:
        registers: the most a thread may use.
        at_least: instructions that must occur so often (`HGMMA` matrix products, `LDGSTS` asynchronous copies ..).
        none: instructions that must not occur at all, besides spills, which no kernel may have.
    """

    registers: int
    at_least: Mapping[str, int] = field(default_factory=dict)
    none: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AheadCase:
    """One compilation of one kernel, with the shapes of a real model.

    Attributes:
        name: such as `gemm bf16 verify tile`.
        kernel: the function under `triton.jit`.
        signature: Triton's type of each run-time argument, such as `*bf16`, `i32`, `fp32`.
        constants: values of the `tl.constexpr` arguments.
        aligned: names of the arguments that are pointers or numbers divisible by 16, as they are when launched.
        options: `num_warps`, `num_stages`, `enable_fp_fusion`, as launched.
        floor: what the hardware must at least move or compute for one launch, in words and a formula.
        design: how the kernel comes near that floor, in a sentence or two.
    """

    name: str
    kernel: object
    signature: Mapping[str, str]
    constants: Mapping[str, object]
    aligned: tuple[str, ...]
    options: Mapping[str, object]
    gate: Gate
    floor: str
    design: str
