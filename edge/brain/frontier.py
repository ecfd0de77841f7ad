"""Where a tree may grow: the nodes behind which nothing was asked yet, the most promising first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from acespec.proto.nodes import ROOT


class Frontier:
    """A heap of keys by what they promise. Whatever is dropped or asked about stays in it until it comes to the top."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = [(-1.0, ROOT)]

    def add(self, promise: float, key: int) -> None:
        """A node that may be asked about."""
        heappush(self._heap, (-promise, key))

    def best(self, is_open: Callable[[int], bool]) -> int | None:
        """The best key that is still open; None if there is none. What is above it is forgotten."""
        while self._heap:
            key = self._heap[0][1]
            if is_open(key):
                return key
            heappop(self._heap)
        return None

    def refill(self, items: Iterable[tuple[float, int]]) -> None:
        """Hold these (promise, key) and nothing else."""
        self._heap = [(-promise, key) for promise, key in items]
        heapify(self._heap)
