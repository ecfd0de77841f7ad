"""Kernels compiled for an H100 (sm_90) on a machine without one.

Triton needs no GPU to compile, only to launch. What it must be told by hand is what it finds out at a launch: each
argument's type, which ones are constants, and which are divisible by 16; without the last nothing is copied
asynchronously, so that the result would say nothing of what runs.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from dataclasses import dataclass

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from acespec import kernels
from acespec.kernels.ahead_case import AheadCase
from acespec.proto.errors import UsageError

HOPPER = GPUTarget("cuda", 90, 32)
"""H100, H200, GH200: compute capability 9.0, 32 threads a warp."""

FUSED = re.compile(r"\bfma\.[a-z.]*f(?:32|64)\b")

Names = tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True)
class Specialisation:
    """All that Triton makes machine code from, besides the source: two launches with equal ones run the same code.

    Attributes:
        kernel: its name.
        types: of the run-time arguments.
        constants: names and values; a launch adds the numbers that are 1 and not exempt.
        aligned: arguments that are taken to be divisible by 16.
        options: `num_warps`, `num_stages`, `enable_fp_fusion`.
    """

    kernel: str
    types: Names
    constants: Names
    aligned: tuple[str, ...]
    options: Names

    def as_text(self) -> str:
        """One line; equal for equal specialisations, whatever the order of their parts."""
        parts = (self.types, self.constants, self.aligned, self.options)
        return "; ".join([self.kernel, *(", ".join(sorted(map(_text, part))) for part in parts)])


@dataclass(frozen=True, slots=True)
class Compiled:
    """A case's machine code.

    Attributes:
        cubin: an ELF file for sm_90.
        shared: bytes of shared memory a program uses.
        fused: multiply-adds in fp32 or fp64 with a single rounding that Triton asks for. None may be: only then does
            FFMA in the machine code stem from division and square root alone, which ptxas rounds correctly by it.
        seconds: what it took; next to nothing if Triton's cache held it.
    """

    case: AheadCase
    cubin: bytes
    shared: int
    fused: int
    seconds: float


def all_cases() -> tuple[AheadCase, ...]:
    """Every case of every kernel module, modules in alphabetical order."""
    found: list[AheadCase] = []
    for module in sorted(pkgutil.iter_modules(kernels.__path__), key=lambda module: module.name):
        if not module.name.startswith("_"):
            found += getattr(importlib.import_module(f"{kernels.__name__}.{module.name}"), "AHEAD", ())
    return tuple(found)


def compile_case(case: AheadCase) -> Compiled:
    """Compile a case for `HOPPER`.

    Raises:
        UsageError: the case does not fit the kernel, or kernels are interpreted in this process.
    """
    kernel = jit_function(case)
    names = _checked_names(case, kernel)
    source = ASTSource(
        kernel,
        signature={name: case.signature.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in case.constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in case.aligned},
    )
    start = time.perf_counter()
    made = triton.compile(source, target=HOPPER, options=dict(case.options))
    seconds = time.perf_counter() - start
    fused = len(FUSED.findall(made.asm["ptx"]))
    return Compiled(case, made.asm["cubin"], made.metadata.shared, fused, seconds)


def specialisation(case: AheadCase) -> Specialisation:
    """What a launch must look like to run this case's machine code."""
    return Specialisation(
        jit_function(case).__name__,
        tuple(case.signature.items()),
        tuple(case.constants.items()),
        tuple(case.aligned),
        tuple(case.options.items()),
    )


def jit_function(case: AheadCase) -> JITFunction:
    """The case's kernel, as Triton compiles it."""
    if not isinstance(case.kernel, JITFunction):
        raise UsageError(f"{case.name}: its kernel is interpreted here; unset TRITON_INTERPRET and start afresh")
    return case.kernel


def _checked_names(case: AheadCase, kernel: JITFunction) -> list[str]:
    """The kernel's arguments in order, each given once by the case."""
    names = list(kernel.arg_names)
    given = [*case.signature, *case.constants]
    if sorted(given) != sorted(names):
        odd = sorted(set(given) ^ set(names)) or sorted(name for name in given if given.count(name) > 1)
        raise UsageError(f"{case.name}: signature and constants must name each argument once; look at {odd}")
    if strangers := sorted(set(case.aligned) - set(case.signature)):
        raise UsageError(f"{case.name}: aligned names no run-time arguments: {strangers}")
    return names


def _text(part: object) -> str:
    return f"{part[0]}={part[1]}" if isinstance(part, tuple) else str(part)
