"""How a weight's matrix product is cut into programs: by the weight's shape alone, never by how many rows there are.

A row must get the same bits in every step, whatever else the step carries. So block_k and the number of splits follow
from (outputs, inputs, kind). Only block_rows has two values, narrow for verify steps and wide for prefill: it decides
which rows share a program, not in which order a row's products are summed.

Splits. A step of few rows takes as long as its weight takes to be read, which needs enough programs at once; weights
with few output rows get there by cutting their inputs into ranges. Each range costs one more plane of partial sums,
which is written and read again, so the choice weighs the two. The figures behind it are estimates for an H100, not
measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["bf16", "w4"]

RESIDENT = 2 * 132
"""Programs that run at once: two on each of the 132 multiprocessors of an H100 or H200."""
ENOUGH: dict[Kind, int] = {"bf16": 120, "w4": 240}
"""Programs that keep memory busy. Unpacking 4-bit codes takes instructions of its own, hence two a multiprocessor."""
WEIGHT_BYTES: dict[Kind, float] = {"bf16": 2.0, "w4": 0.5}
BLOCK_K: dict[Kind, int] = {"bf16": 64, "w4": 128}
"""128 bytes of a row's bf16, 64 of its codes: 16 for each thread of a quad."""
BLOCK_N = 128
MOST_SPLITS = 8
SHORTEST_SPLIT = 4
"""Blocks of k below which a split only fills its pipeline."""
PLANNED_ROWS = 16
"""Rows of a typical verify step, for the cost of a plane of partial sums."""


@dataclass(frozen=True, slots=True)
class GemmTile:
    """One program's share of a product and how it is run.

    Attributes:
        block_n: rows of the weight, which are columns of the output.
        block_rows: rows of the step.
        block_k: inputs taken at a time.
        splits: ranges of inputs that are summed apart, each into its own plane of the output.
        stages: blocks of k in flight (Triton's num_stages).
        warps: warps of 32 threads in a program.
    """

    block_n: int
    block_rows: int
    block_k: int
    splits: int
    stages: int
    warps: int


def gemm_tile(outputs: int, inputs: int, kind: Kind = "bf16", wide: bool = False) -> GemmTile:
    """The tile for a weight [outputs, inputs]; narrow and wide differ in rows, stages and warps alone."""
    splits = splits_of(outputs, inputs, kind)
    if wide:
        return GemmTile(BLOCK_N, 128, BLOCK_K[kind], splits, stages=3, warps=8)
    return GemmTile(BLOCK_N, 64, BLOCK_K[kind], splits, stages=4, warps=4)


def splits_of(outputs: int, inputs: int, kind: Kind) -> int:
    """How many ranges the inputs are cut into; ties go to fewer."""
    blocks = cdiv(inputs, BLOCK_K[kind])
    possible = [s for s in range(1, MOST_SPLITS + 1) if s == 1 or _shortest(blocks, s) >= SHORTEST_SPLIT]
    return min(possible, key=lambda splits: _time(outputs, inputs, kind, splits))


def split_length(inputs: int, splits: int, block_k: int) -> int:
    """Inputs of each range but the last, which may be shorter: a multiple of block_k."""
    return cdiv(cdiv(inputs, block_k), splits) * block_k


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def _shortest(blocks: int, splits: int) -> int:
    """Blocks of the last of so many ranges; 0 or less if one stays empty."""
    return blocks - (splits - 1) * cdiv(blocks, splits)


def _time(outputs: int, inputs: int, kind: Kind, splits: int) -> float:
    """Estimated time of a product, relative to one perfect read of its weight."""
    programs = cdiv(outputs, BLOCK_N) * splits
    waves = cdiv(programs, RESIDENT)
    busy = min(1.0, programs / ENOUGH[kind]) if waves == 1 else programs / (RESIDENT * waves)
    uneven = split_length(inputs, splits, BLOCK_K[kind]) * splits / inputs
    planes = splits * PLANNED_ROWS * 2 * 4 / (WEIGHT_BYTES[kind] * inputs)
    return uneven / busy + planes
