"""Keys and values of all sessions in one pool of pages. Who owns which page is decided elsewhere.

Pages of `PAGE` positions lie side by side, so those with consecutive numbers are consecutive positions of one tensor
and are read without a copy. Attention reads whole pages from position 0 on, so rows of a block's last page beyond its
end must hold finite numbers: memory is zero when new, and what a rollback or a former owner left there is zeroed
before the block runs. Pages that a block only reads are not touched: others may be reading them.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from acespec.cloud.runner import PAGE, pages_for
from acespec.cloud.torch_backend.config import ModelConfig
from acespec.proto.errors import UsageError

FLOAT_BYTES = 4


def page_bytes(config: ModelConfig) -> int:
    """Bytes of one page over all layers."""
    return config.layers * 2 * config.kv_heads * PAGE * config.head_dim * FLOAT_BYTES


def runs(pages: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Cut positions start .. end - 1 where their pages are not consecutive: (position, row of the pool, length)."""
    first = start
    while first < end:
        last = min(end, (first // PAGE + 1) * PAGE)
        while last < end and pages[last // PAGE] == pages[last // PAGE - 1] + 1:
            last = min(end, last + PAGE)
        yield first, pages[first // PAGE] * PAGE + first % PAGE, last - first
        first = last


class KvCache:
    """The pool: float32[layers, 2, kv_heads, pages * PAGE, head_dim]. Not thread-safe: one engine thread owns it.

    Attributes:
        layers: the same, a tensor for each layer.
    """

    def __init__(self, config: ModelConfig, pages: int) -> None:
        """Reserve `pages`; memory is taken as they are first written. Raises `UsageError` if it cannot be had."""
        self.pages = pages
        shape = (config.layers, 2, config.kv_heads, pages * PAGE, config.head_dim)
        self.kv = _lazy_zeros(pages * page_bytes(config)).view(shape)
        self.layers = self.kv.unbind()
        self._dirty = np.zeros(pages, np.int64)

    @property
    def nbytes(self) -> int:
        return self.kv.nbytes

    def make_room(self, pages: Sequence[int], start: int, end: int, keep: int) -> None:
        """Prepare the page table `pages` for rows at positions start .. end - 1.

        Args:
            keep: positions from here on are zeroed where they hold something; those before are about to be
                written. `end` serves if every row is written before a row is read, `start` if not.
        """
        for number in range(start // PAGE, pages_for(end)):
            page, begin = pages[number], number * PAGE
            valid, stale = max(keep - begin, 0), int(self._dirty[page])
            if stale > valid:
                self.kv[:, :, :, page * PAGE + valid : page * PAGE + stale] = 0.0
            self._dirty[page] = min(end - begin, PAGE)


def _lazy_zeros(size: int) -> torch.Tensor:
    """float32[size / 4] of zeros at a 4 KiB boundary; torch.zeros would write, and so take, all of it at once."""
    try:
        if sys.platform == "win32":
            memory = mmap.mmap(-1, size)
        else:
            memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError, ValueError) as error:
        raise UsageError(f"no room for {size / 2**30:.1f} GiB of KV pages ({error}); ask for fewer pages") from error
    return torch.frombuffer(memory, dtype=torch.float32)
