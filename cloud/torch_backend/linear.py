"""Linear layers whose rows do not depend on each other, not even in the last bit.

A matrix product is a sum over k for each output element. Libraries choose its order by the number of rows M: a
dot-product kernel at M = 1, other splits of k at others. We need one order for every M, and as fast as we can get
it at M = 1.

oneDNN's packed inner product comes very close: it streams the weight in blocks of outputs and adds up k one after
another with fused multiply-adds, in a block of k that is the same for all M >= 2 (1024 here; measured equal to
that chain, bit for bit), and for k <= 1024 at M = 1 too. Measured on an AVX-512 Xeon, torch 2.13, one thread,
microseconds, MKL's row-major product / packed (noisy, shared machine):

    K x N           M = 1        2            4            8            16           64
    576 x 960       132 / 191    175 / 189    272 / 189    338 / 244    437 / 321    946 / 855
    576 x 3072      332 / 389    363 / 400    666 / 400    941 / 529    1313 / 734   2607 / 2201
    1536 x 576      182 / 256    193 / 262    331 / 275    473 / 328    520 / 437    1145 / 1130
    576 x 49152     8623 / 8113  9703 / 7982  18760 / 7451 29135 / 9230 25250 / 13376 46744 / 34367

So a lone row costs 1.2 to 1.5 times MKL's matrix-vector product in the small layers and nothing in the output head,
and up to four rows ride along almost free. MKL itself needs rows padded to 16 on that machine (4 on an AVX2 one),
and with two threads no padding helps in some shapes. The packed bits were also the same at 1, 2, 3 and 4 threads.

Since this differs between machines, nothing is assumed: the first layer of each shape is tried at load, and gets
the cheapest rule under which all row counts agree: rows padded to a multiple, and cut into pieces no larger than
what was tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

import torch

MOST_ROWS = 128
"""Rows of one product; more are cut, so that no untried row count is ever used."""

TRIED_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 64, 96, 127, MOST_ROWS)
TRIED_ROWS_LARGE = (1, 2, 3, 4, 7, 8, 16, 17, 32, MOST_ROWS)
LARGE = 1 << 23
"""Elements of a weight from which on fewer row counts are tried, to keep the start short."""


@dataclass(frozen=True, slots=True)
class RowRule:
    """Rows of a product are padded to a multiple of `multiple` and cut into pieces of at most `most`."""

    multiple: int
    most: int

    def padded(self, rows: int) -> int:
        return -(-rows // self.multiple) * self.multiple


RULES = (*(RowRule(m, MOST_ROWS) for m in (1, 2, 4, 8, 16)), RowRule(16, 16), RowRule(4, 4))
"""Tried in this order: cheapest first. The last ones use a single row count."""


class Kernel(Protocol):
    """Computes x @ weight.T + bias for float32[M, K] -> float32[M, N], in whatever order it likes for each M."""

    inputs: int
    outputs: int

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...

    def region(self) -> tuple[int, int]: ...


class PackedKernel:
    """oneDNN's inner product over a weight that is re-laid once, at load."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.outputs, self.inputs = weight.shape
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self._bias = bias
        self._product = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self._product(x, self._weight, self._bias, "none", [], ""))

    def region(self) -> tuple[int, int]:
        """(address, bytes) of the packed weight."""
        ops = torch.ops.mkldnn
        return ops.data_ptr(self._weight), ops._nbytes(self._weight)


class PlainKernel:
    """torch's own linear: for builds without oneDNN."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.outputs, self.inputs = weight.shape
        self._weight, self._bias = weight, bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self._weight, self._bias)

    def region(self) -> tuple[int, int]:
        """(address, bytes) of the weight."""
        return self._weight.data_ptr(), self._weight.nbytes


def best_kernel(weight: torch.Tensor, bias: torch.Tensor | None) -> Kernel:
    """The packed kernel where this build of torch has it."""
    if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return PackedKernel(weight, bias)
    return PlainKernel(weight, bias)


class Linear:
    """A kernel under a row rule: the product that the model uses."""

    def __init__(self, kernel: Kernel, rule: RowRule) -> None:
        self.kernel, self.rule = kernel, rule

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """float32[rows, K] -> float32[rows, N]; each row's bits are independent of the others."""
        rows = x.shape[0]
        if rows <= self.rule.most:
            return self._piece(x)
        return torch.cat([self._piece(piece) for piece in torch.split(x, self.rule.most)])

    def _piece(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        missing = self.rule.padded(rows) - rows
        if not missing:
            return self.kernel(x)
        return self.kernel(torch.cat((x, x.new_zeros(missing, x.shape[1]))))[:rows]


class RowRules:
    """Finds the row rule of each layer shape, once, with the first layer of that shape."""

    def __init__(self) -> None:
        self._rules: dict[tuple[int, int], RowRule] = {}
        self.failed: list[tuple[int, int]] = []
        self.regions: list[tuple[int, int]] = []

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
        """Pack float32[N, K] (and bias [N]) into a `Linear`; a shape that no rule fits is put on `failed`."""
        kernel = best_kernel(weight, bias)
        self.regions.append(kernel.region())
        shape = (kernel.inputs, kernel.outputs)
        if shape not in self._rules:
            rule = find_rule(kernel)
            if rule is None:
                self.failed.append(shape)
            self._rules[shape] = rule or RULES[0]
        return Linear(kernel, self._rules[shape])

    def table(self) -> list[tuple[int, int, int, int]]:
        """(K, N, multiple, most) of all shapes, sorted: part of the numerics' name."""
        return sorted((k, n, rule.multiple, rule.most) for (k, n), rule in self._rules.items())


def find_rule(kernel: Kernel) -> RowRule | None:
    """The first of `RULES` under which all tried row counts and orders give equal bits, or None."""
    return next((rule for rule in RULES if holds(Linear(kernel, rule))), None)


def holds(linear: Linear) -> bool:
    """Whether rows of noise come out the same alone, in every tried company, and shuffled."""
    x = _noise(MOST_ROWS, linear.kernel.inputs)
    expected = linear(x)
    large = linear.kernel.inputs * linear.kernel.outputs >= LARGE
    for rows in TRIED_ROWS_LARGE if large else TRIED_ROWS:
        if not torch.equal(linear(x[:rows]), expected[:rows]):
            return False
    order = torch.arange(16).flip(0) * 7 % MOST_ROWS
    return torch.equal(linear(x[order]), expected[order])


def _noise(rows: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, width, generator=generator)
