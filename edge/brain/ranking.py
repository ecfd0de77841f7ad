"""Keys in the order of their survival, kept in that order: who ships and who makes room look at its ends."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator


class Ranking:
    """The likeliest first, of equals the oldest. To add or to remove one costs a search."""

    __slots__ = ("_order",)

    def __init__(self) -> None:
        self._order: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[int]:
        return (key for _, key in self._order)

    def __reversed__(self) -> Iterator[int]:
        return (key for _, key in reversed(self._order))

    def add(self, survival: float, key: int) -> None:
        """Put a key in its place."""
        insort(self._order, (-survival, key))

    def remove(self, survival: float, key: int) -> None:
        """Take a key out; `survival` is what it was added with."""
        del self._order[bisect_left(self._order, (-survival, key))]

    def refill(self, items: Iterable[tuple[float, int]]) -> None:
        """Hold these (survival, key) and nothing else. Hardly more than a walk if they come in their order."""
        self._order = sorted((-survival, key) for survival, key in items)
