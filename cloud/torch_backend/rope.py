"""Rotary position embedding (Su et al., arXiv 2104.09864) from tables, in the half-split layout of these families.

Angles are fp32 products of position and inverse frequency, as checkpoints were trained with; their cosine and sine
are computed in float64 and rounded, so that an entry depends on its position alone and not on the table's length.
"""

from __future__ import annotations

import math

import torch

from acespec.cloud.runner import PAGE, pages_for
from acespec.cloud.torch_backend.config import Llama3Scaling, ModelConfig


class RopeTable:
    """Cosines and sines of all positions below `length` (rounded up to whole pages)."""

    def __init__(self, config: ModelConfig, length: int) -> None:
        length = pages_for(length) * PAGE
        angles = torch.outer(torch.arange(length, dtype=torch.float32), inverse_frequencies(config)).double()
        # Piece by piece: the vector code's remainder would otherwise fall on other positions at other lengths.
        cos = torch.cat([piece.cos().float() for piece in torch.split(angles, PAGE)])
        sin = torch.cat([piece.sin().float() for piece in torch.split(angles, PAGE)])
        # The rotation of (a, b) is (a cos - b sin, b cos + a sin): the sign lives in the table.
        self._cos = torch.cat((cos, cos), -1)[:, None]
        self._sin = torch.cat((-sin, sin), -1)[:, None]

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(cos, signed sin), float32[rows, 1, head_dim] each, for int64[rows]."""
        return self._cos[positions], self._sin[positions]

    def halves(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(cos, sin) of all positions, float32[positions, head_dim / 2] each, for kernels that bring the sign."""
        half = self._cos.shape[-1] // 2
        return self._cos[:, 0, :half].contiguous(), self._sin[:, 0, half:].contiguous()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate float32[rows, heads, head_dim] by each row's angles."""
    half = x.shape[-1] // 2
    swapped = torch.cat((x[..., half:], x[..., :half]), -1)
    return (x * cos).add_(swapped.mul_(sin))


def inverse_frequencies(config: ModelConfig) -> torch.Tensor:
    """float32[head_dim / 2]: radians a position, stretched if the config says so."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    plain = 1.0 / (config.rope_theta**exponents)
    return plain if config.scaling is None else _stretched(plain, config.scaling)


def _stretched(frequencies: torch.Tensor, scaling: Llama3Scaling) -> torch.Tensor:
    """Llama 3.1: slow frequencies are divided by the factor, fast ones kept, those between blended."""
    turns = scaling.original_length * frequencies / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / span).clamp(0.0, 1.0)
    return (1 - keep) * frequencies / scaling.factor + keep * frequencies
