"""Triton's interpreter, made to compute as a GPU does where it does not by itself.

bfloat16. The interpreter keeps such numbers as bare 16-bit words: it would multiply the words in `tl.dot`, cuts off
bits where it should round to nearest, ties to even, and widens the smallest ones wrongly. `mend` corrects all three;
`launch` calls it when kernels are interpreted.

Matrix products. The interpreter hands `tl.dot` to NumPy, whose library picks the order of its sums by the shape and by
where a row stands, so that even a correct kernel gives other bits in other company. Inside `fixed_order_dot` every
element is a chain over k, each product and sum rounded to fp32: what a row gets depends on that row alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

Product = Callable[[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]], NDArray[np.float32]]

_cast = InterpreterBuilder.cast_impl
_to_fp = InterpreterBuilder.create_fp_to_fp


def mend() -> None:
    """Make bfloat16 products and conversions right for this process."""
    InterpreterBuilder.create_dot = _dot_by(_by_library)
    InterpreterBuilder.cast_impl = _cast_impl
    InterpreterBuilder.create_fp_to_fp = _create_fp_to_fp


@contextmanager
def fixed_order_dot() -> Iterator[None]:
    """While open, interpreted kernels multiply matrices in a fixed order."""
    before = InterpreterBuilder.create_dot
    InterpreterBuilder.create_dot = _dot_by(_by_chain)
    try:
        yield
    finally:
        InterpreterBuilder.create_dot = before


def _dot_by(product: Product):
    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        return TensorHandle(product(_floats(a), _floats(b), d.data.astype(np.float32)), d.dtype.scalar)

    return create_dot


def _by_library(a: NDArray[np.float32], b: NDArray[np.float32], d: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.matmul(a, b) + d


def _by_chain(a: NDArray[np.float32], b: NDArray[np.float32], d: NDArray[np.float32]) -> NDArray[np.float32]:
    """d + a @ b for [m, k] x [k, n], k ascending."""
    total = d.copy()
    for k in range(a.shape[1]):
        total += a[:, k, None] * b[None, k]
    return total


def _cast_impl(self, src, dst_type):
    mended = _between(src, dst_type)
    return _cast(self, src, dst_type) if mended is None else mended


def _create_fp_to_fp(self, src, dst_type, rounding_mode):
    mended = _between(src, dst_type)
    return _to_fp(self, src, dst_type, rounding_mode) if mended is None else mended


def _between(src, dst_type):
    """A conversion between float32 and bfloat16, or None if it is another one."""
    types = src.dtype.scalar, dst_type.scalar
    if types == (tl.float32, tl.bfloat16):
        return _rounded(src)
    return TensorHandle(_floats(src), tl.float32) if types == (tl.bfloat16, tl.float32) else None


def _rounded(src):
    """float32 to bfloat16 words, to nearest, ties to even; NaN stays NaN."""
    bits = src.data.astype(np.float32).view(np.uint32)
    words = ((bits + (0x7FFF + (bits >> np.uint32(16) & np.uint32(1)))) >> np.uint32(16)).astype(np.uint16)
    return TensorHandle(np.where(np.isnan(src.data), np.uint16(0x7FC0), words), tl.bfloat16)


def _floats(handle) -> NDArray[np.float32]:
    if handle.dtype.scalar == tl.bfloat16:
        return (handle.data.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return handle.data.astype(np.float32)
