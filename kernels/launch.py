"""Where a kernel runs: on the GPU, in Triton's interpreter, or not at all (then its naive twin does the work).

Triton decides when a kernel is defined whether it will be interpreted, by `TRITON_INTERPRET`; so that variable must be
set before any kernel module is imported.
"""

from __future__ import annotations

import torch
from triton import knobs

from acespec.kernels import interpreter


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter, on CPU tensors."""
    return bool(knobs.runtime.interpret)


def on_triton(tensor: torch.Tensor) -> bool:
    """Whether a launcher given `tensor` starts its kernel; otherwise it calls its reference."""
    return tensor.is_cuda or interpreting()


if interpreting():
    interpreter.mend()
