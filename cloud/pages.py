"""The free KV pages, and which of them a growing session gets next.

Any free page would do. But a runner reads consecutive pages as one view, without a copy, so a session is given the
page behind its last one where that is free, and else starts in the longest free gap: half of what it leaves of the gap
lies before it, for the session there to grow into, half behind it for itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


class PagePool:
    """The free ones of pages 0 .. count - 1; at first, all.

    A fault in the accounting of its user, such as a page given back twice, raises `RuntimeError`: going on would let
    two sessions write to one page.
    """

    def __init__(self, count: int) -> None:
        if count < 0:
            raise ValueError(f"{count} pages cannot be")
        # One byte a page, 1 if free, between two sentinels, so that every gap has two edges. The array is a view.
        self._flags = bytearray(b"\0" + b"\1" * count + b"\0")
        self._array = np.frombuffer(self._flags, np.uint8)
        self._count = count
        self._free = count

    @property
    def count(self) -> int:
        """Pages there are, free or not."""
        return self._count

    @property
    def free(self) -> int:
        """Free pages."""
        return self._free

    def take(self, after: int | None = None, run: int = 1) -> int | None:
        """A page that is free no more; None if there is none.

        Args:
            after: the page that the session got last.
            run: how many pages it is about to take, this one included: a gap that holds them all is not split so that
                it does not.
        """
        if not self._free:
            return None
        page = after + 1 if after is not None and self._flags[after + 2] else self._in_longest_gap(run)
        self._flags[page + 1] = 0
        self._free -= 1
        return page

    def give(self, pages: Iterable[int]) -> None:
        """Take `pages` back.

        Raises:
            RuntimeError: one is free already or does not exist.
        """
        for page in pages:
            if not 0 <= page < self._count or self._flags[page + 1]:
                raise RuntimeError(
                    f"page {page} of {self._count} was given back twice or does not exist; this is a bug"
                )
            self._flags[page + 1] = 1
            self._free += 1

    def _in_longest_gap(self, run: int) -> int:
        """One pass over the flags, some tens of microseconds for 10,000 pages; needed when a run of pages begins."""
        edges = np.flatnonzero(self._array[1:] != self._array[:-1])
        starts, ends = edges[::2], edges[1::2]
        longest = int(np.argmax(ends - starts))
        start, end = int(starts[longest]), int(ends[longest])
        # Nobody grows into a gap that begins at page 0.
        return start + max(0, end - start - run) // 2 if start else start
