"""A weight and the two fixed tiles that it is multiplied with.

The narrow tile serves any number of rows; the wide one reads the weight less often when there are many. Which is used
may depend on the number of rows only where both were seen to give equal bits (`numerics.wide_agrees`).
"""

from __future__ import annotations

import math

import torch

from acespec.kernels.gemm import gemm
from acespec.kernels.gemm_w4 import gemm_w4
from acespec.kernels.tiles import GemmTile, Kind, gemm_tile
from acespec.kernels.w4_weight import W4Weight

Weight = torch.Tensor | W4Weight


class Product:
    """x @ weight.T as fp32 partial sums, one for each fixed range of k."""

    def __init__(self, weight: Weight, outputs: int, inputs: int) -> None:
        self.weight, self.outputs, self.inputs = weight, outputs, inputs
        kind: Kind = "w4" if isinstance(weight, W4Weight) else "bf16"
        self.narrow: GemmTile = gemm_tile(outputs, inputs, kind)
        self.wide: GemmTile = gemm_tile(outputs, inputs, kind, wide=True)

    def __call__(self, x: torch.Tensor, space: torch.Tensor, *, wide: bool) -> torch.Tensor:
        """float32[splits, rows, outputs] for bf16[rows, inputs], laid in the flat float32 `space`."""
        tile = self.wide if wide and len(x) > self.narrow.block_rows else self.narrow
        out = space[: self.numbers(len(x))].view(tile.splits, len(x), self.outputs)
        if isinstance(self.weight, W4Weight):
            gemm_w4(x, self.weight, out, tile)
        else:
            gemm(x, self.weight, out, tile)
        return out

    @property
    def device(self) -> torch.device:
        """Where the weight is."""
        return self.weight.words.device if isinstance(self.weight, W4Weight) else self.weight.device

    def numbers(self, rows: int) -> int:
        """Numbers of `space` that a product of so many rows takes."""
        return math.prod((self.narrow.splits, rows, self.outputs))

    def nbytes(self) -> int:
        """Bytes that one product reads of the weight."""
        return self.weight.nbytes
