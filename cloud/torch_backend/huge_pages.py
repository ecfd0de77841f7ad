"""Ask Linux to back the packed weights with 2 MiB pages.

A decode step streams every weight once, so with 4 KiB pages the processor walks page tables all the way. Measured
on SmolLM2 (one thread, noisy): a plain step takes 76-80 ms with huge pages, 96-105 without. It is only a hint: where
the system does not know or grant it, nothing but speed is lost, and no bit changes.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable

BLOCK = 1 << 21
MADV_HUGEPAGE = 14
MADV_COLLAPSE = 25

Region = tuple[int, int]
"""(address, bytes)."""


def use_huge_pages(regions: Iterable[Region]) -> int:
    """Collapse the 2 MiB blocks that lie inside `regions`, joined where they touch; returns how many did."""
    if not sys.platform.startswith("linux"):
        return 0
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    granted = 0
    for address in whole_blocks(regions):
        if madvise(address, BLOCK, MADV_HUGEPAGE) == 0:
            granted += madvise(address, BLOCK, MADV_COLLAPSE) == 0
    return granted


def whole_blocks(regions: Iterable[Region]) -> list[int]:
    """Addresses of the aligned blocks covered by regions; memory of ours between neighbours is taken along."""
    blocks: list[int] = []
    for start, end in _joined(sorted(regions)):
        blocks += range(-(-start // BLOCK) * BLOCK, end - BLOCK + 1, BLOCK)
    return blocks


def _joined(regions: Iterable[Region], gap: int = BLOCK) -> list[Region]:
    """(start, end) of runs of regions that lie at most `gap` bytes apart."""
    runs: list[Region] = []
    for address, size in regions:
        if runs and address - runs[-1][1] <= gap:
            runs[-1] = (runs[-1][0], address + size)
        else:
            runs.append((address, address + size))
    return runs
