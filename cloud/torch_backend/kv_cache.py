"""Keys and values of all sessions, one slot each; rollback is a length change.

A slot is one tensor that grows by doubling, in whole tiles. Attention reads whole tiles from position 0 on, so
rows of the last tile beyond the slot's length must hold finite numbers: memory is zero when new, and what a
rollback left behind is zeroed before the next step reads its tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from acespec.cloud.torch_backend.config import ModelConfig
from acespec.proto.errors import Exhausted

TILE = 64
"""Positions of a KV tile, at absolute multiples. Part of the numerics: a row attends over its own whole tiles."""

FIRST_CAPACITY = 4 * TILE


def whole_tiles(length: int) -> int:
    """`length` rounded up to whole tiles."""
    return -(-length // TILE) * TILE


@dataclass(slots=True)
class Slot:
    """One session's keys and values: float32[layers, 2, kv_heads, capacity, head_dim].

    Attributes:
        length: positions that count.
        dirty: positions that were ever written since memory was zero; those past `length` are garbage.
    """

    kv: torch.Tensor
    length: int = 0
    dirty: int = 0


class KvCache:
    """The slots. Not thread-safe: one engine thread owns it."""

    def __init__(self, config: ModelConfig, max_length: int, max_slots: int) -> None:
        self.max_length = max_length
        self._config, self._max_slots = config, max_slots
        self._most = whole_tiles(max_length)
        self._slots: dict[int, Slot] = {}

    def allocate(self) -> int:
        """The lowest free slot number, empty. Raises `Exhausted` if all are taken."""
        if len(self._slots) >= self._max_slots:
            raise Exhausted(f"all {self._max_slots} KV slots are in use; retry when a session has ended")
        number = next(n for n in range(self._max_slots) if n not in self._slots)
        self._slots[number] = Slot(self._zeros(min(FIRST_CAPACITY, self._most)))
        return number

    def release(self, number: int) -> None:
        """Forget a slot and free its memory. Raises KeyError for one that is not allocated."""
        del self._slots[number]

    @contextmanager
    def lent(self) -> Iterator[int]:
        """A slot for the length of a with block."""
        number = self.allocate()
        try:
            yield number
        finally:
            self.release(number)

    def slot(self, number: int) -> Slot:
        """Raises KeyError for a slot that is not allocated."""
        return self._slots[number]

    def __contains__(self, number: int) -> bool:
        return number in self._slots

    def bytes_used(self) -> int:
        """Memory of all slots."""
        return sum(slot.kv.nbytes for slot in self._slots.values())

    def make_room(self, number: int, start: int, end: int) -> Slot:
        """Cut a slot to `start`, then extend it to `end`; rows start .. end - 1 are about to be written."""
        slot = self._slots[number]
        if end > slot.kv.shape[3]:
            self._grow(slot, start, end)
        stale = min(slot.dirty, whole_tiles(end))
        if stale > end:
            slot.kv[:, :, :, end:stale] = 0.0
        # Garbage beyond this tile is only reached by a later step, whose end lies in its tile: zeroed then.
        slot.dirty = max(slot.dirty, end)
        slot.length = end
        return slot

    def _grow(self, slot: Slot, keep: int, end: int) -> None:
        capacity = slot.kv.shape[3]
        while capacity < end:
            capacity *= 2
        grown = self._zeros(min(capacity, self._most))
        grown[:, :, :, :keep] = slot.kv[:, :, :, :keep]
        slot.kv, slot.dirty = grown, keep

    def _zeros(self, capacity: int) -> torch.Tensor:
        config = self._config
        return torch.zeros(config.layers, 2, config.kv_heads, capacity, config.head_dim)
