"""Row-wise operations whose library code could tell one row from another.

torch cuts large element-wise and reduction loops into pieces for its threads, and handles what is left of a
vector register in scalar code, whose exp differs in the last bit. Both would make a row's bits depend on how many
rows stand beside it. So work goes in pieces that are too small to be cut (below torch's grain), over operands
laid out row by row, so that each row is one inner loop of the same length.

Sums, products, quotients and square roots of single elements are exact by IEEE 754 in any order and need no care.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

GRAIN = 32768
"""Elements from which on torch divides a loop among threads (at::internal::GRAIN_SIZE)."""

_HIGHEST, _LOWEST = torch.tensor(1e15), torch.tensor(-1e15)


def row_pieces(rows: int, width: int) -> Iterator[slice]:
    """Slices over `rows` rows of `width` elements that stay below the grain (or are single rows)."""
    size = max(1, (GRAIN - 1) // width)
    for first in range(0, rows, size):
        yield slice(first, min(first + size, rows))


def gated_silu(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, for float32[rows, 2 * width] holding both side by side -> float32[rows, width]."""
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    gate, up = gate_up[:, :width], gate_up[:, width:]
    if rows * width < GRAIN:
        return torch.nn.functional.silu(gate).mul_(up)
    out = torch.empty(rows, width)
    for piece in row_pieces(rows, width):
        torch.ops.aten.silu.out(gate[piece], out=out[piece])
    return out.mul_(up)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalise each row by its root mean square (Zhang, Sennrich, arXiv 1910.07467): float32[rows, width]."""
    mean = _row_sums(x * x).mul_(1.0 / x.shape[1])
    return (x * mean.add_(eps).rsqrt_()).mul_(weight)


def _row_sums(x: torch.Tensor) -> torch.Tensor:
    rows, width = x.shape
    if rows * width < GRAIN:
        return x.sum(-1, keepdim=True)
    out = torch.empty(rows, 1)
    for piece in row_pieces(rows, width):
        torch.sum(x[piece], -1, keepdim=True, out=out[piece])
    return out


def bounded(x: torch.Tensor) -> torch.Tensor:
    """x in place, with NaN and anything beyond the bound replaced by it.

    Queries, keys and values pass here before they are used. A masked score is an exact -inf, and adds an exact
    zero, only if what is masked is finite; without this a hostile draft whose embedding overflows could reach the
    rows before it through 0 * inf.
    """
    torch.fmin(x, _HIGHEST, out=x)
    return torch.fmax(x, _LOWEST, out=x)
