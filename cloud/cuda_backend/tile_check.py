"""Do the narrow and the wide tile of every product give equal bits on this device? Tried at every start.

Both use the same matrix instructions over the same blocks of k, so they should; but how a device adds up inside an
instruction is not documented, so it is looked at. If they do not, the narrow tile serves all.
"""

from __future__ import annotations

import torch

from acespec.cloud.cuda_backend.product import Product
from acespec.cloud.cuda_backend.weights import Weights
from acespec.kernels.gemm import gemm

ROWS = (1, 5, 8, 64, 65, 128)


def wide_agrees(weights: Weights) -> bool:
    """Whether rows come out the same from the wide tile, and from the narrow one in any company."""
    products = {(p.outputs, p.inputs, type(p.weight)): p for p in weights.products}
    return all(_agrees(product) for product in products.values()) and _head_agrees(weights)


def _agrees(product: Product) -> bool:
    x = _noise(ROWS[-1], product.inputs, product.device)
    space = torch.empty(product.numbers(len(x)), device=x.device)
    expected = product(x, space, wide=True).clone()
    return all(torch.equal(product(x[:rows], space, wide=False), expected[:, :rows]) for rows in ROWS)


def _head_agrees(weights: Weights) -> bool:
    head = weights.head
    x = _noise(ROWS[-1], head.shape[1], head.device)
    outs = [torch.empty(1, len(x), len(head), device=x.device) for _ in range(2)]
    for out, wide in zip(outs, (False, True), strict=True):
        gemm(x, head, out, weights.head_tile(len(x), wide=wide))
    return torch.equal(*outs)


def _noise(rows: int, width: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, width, generator=generator).bfloat16().to(device)
