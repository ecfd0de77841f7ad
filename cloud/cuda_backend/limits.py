"""How much one pass may hold. Buffers and CUDA graphs are made for these sizes once; larger steps run in several
passes, which changes no bit."""

from __future__ import annotations

from dataclasses import dataclass

from acespec.cloud.runner import PREFILL_CHUNK

BUCKETS = (8, 16, 32, 64, 128, 256)
"""Rows that passes are padded to: one CUDA graph each. The machine code is the same for all."""


@dataclass(frozen=True, slots=True)
class PassLimits:
    """Sizes of the buffers of a pass.

    Attributes:
        rows: rows of the step, all blocks together.
        kept: rows whose logits are stored: those with filters, and those that the host draws.
        parts: partial attention states (one for each row and group of splits), and pieces of attention work.
        tail: positions of a block that its own rows bring.
        pages: pages of one page table.
    """

    rows: int = BUCKETS[-1]
    kept: int = PREFILL_CHUNK
    parts: int = 4096
    tail: int = BUCKETS[-1]
    pages: int = 512


def bucket(rows: int) -> int:
    """Rows that a pass of `rows` is padded to; 0 stays 0."""
    if rows == 0:
        return 0
    return next(size for size in BUCKETS if size >= rows)
