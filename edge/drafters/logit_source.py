"""Where a language model's logits come from: the boundary between the drafters and the runtimes.

`LogitSource` is all that a drafter or a recording needs of a model. `RollingState` is the part that every runtime with
a KV cache shares: which ids are in the cache, exact rollback, the window over long paths, prefill in pieces. A runtime
adds how ids are fed and how entries are forgotten.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from acespec.proto.prefix import common_prefix

Rows = NDArray[np.float32]

NARROW = 16
"""Passes of at most so many ids run the same kernels in all runtimes that have several."""
WIDE = 512
_SMALLEST_CHUNK = 8
_CHUNK_SECONDS = (0.05, 0.2)


class LogitSource(Protocol):
    """Logits after any path. Made, used and closed in one and the same thread.

    Attributes:
        widest_pass: most ids of one forward pass. Lowered to `NARROW`, results do not depend on how a path was cut into
            passes, at the price of a slower prefill.
    """

    widest_pass: int

    @property
    def cached(self) -> int:
        """Entries in the model's KV cache."""

    def logits_after(self, path: Sequence[int], should_stop: Callable[[], bool]) -> Rows | None:
        """The row for the token at position len(path), float32[V]; None if stopped on the way, or for no ids.

        What was done before a stop is kept for the next call.
        """

    def rows(self, path: Sequence[int], start: int) -> Iterator[Rows]:
        """The rows for the positions start .. len(path) - 1 given the ids before each: several in one pass.

        Raises:
            ValueError: `start` is 0, or the path is longer than the window.
        """

    def close(self) -> None:
        """Frees the model. Idempotent."""


class RollingState(abc.ABC):
    """Keeps one KV cache in step with whatever path is asked about.

    Args:
        window: most ids in the cache; of longer paths the model sees a recent window.
        embeddings: ids that the model knows; others (a larger, padded target vocabulary) are read as id 0, which only
            costs a guess.
    """

    rows_per_pass = 8
    """Rows of `rows` that are computed together."""

    def __init__(self, window: int, embeddings: int) -> None:
        self.window = window
        self.widest_pass = WIDE
        self._embeddings = embeddings
        self._ids: list[int] = []
        self._base = 0  # position of the first id in the cache
        self._logits: Rows | None = None  # after all of _ids
        self._chunk = _SMALLEST_CHUNK

    @abc.abstractmethod
    def _feed(self, ids: list[int], rows: int) -> Rows:
        """Appends `ids` (never empty) to the cache; the logits of the last `rows` of them, float32[rows, V]."""

    @abc.abstractmethod
    def _forget(self, keep: int) -> None:
        """Drops all but the first `keep` entries of the cache, exactly."""

    @abc.abstractmethod
    def close(self) -> None:
        """See `LogitSource.close`."""

    @property
    def cached(self) -> int:
        """See `LogitSource.cached`."""
        return len(self._ids)

    def logits_after(self, path: Sequence[int], should_stop: Callable[[], bool]) -> Rows | None:
        """See `LogitSource.logits_after`. Afterwards the cache holds exactly the path's window."""
        if not path:
            return None
        self._base = self._base_for(path)
        ids = self._known(path[self._base :])
        keep = common_prefix(self._ids, ids)
        if keep == len(ids) == len(self._ids) and self._logits is not None:
            return self._logits
        # The last id is always fed, since its row is what is asked for.
        self._roll_back(min(keep, len(ids) - 1))
        while len(ids) - len(self._ids) > NARROW:
            if should_stop():
                return None
            self._prefill(ids)
        self._logits = self._append(ids[len(self._ids) :], 1)[0]
        return self._logits

    def rows(self, path: Sequence[int], start: int) -> Iterator[Rows]:
        """See `LogitSource.rows`."""
        if not 0 < start <= len(path) <= self.window:
            raise ValueError(f"rows from {start} of {len(path)} ids do not fit a window of {self.window}")
        self._base = 0
        ids = self._known(path[:-1])
        self._roll_back(min(common_prefix(self._ids, ids), start - 1))
        while len(self._ids) < start - 1:
            self._prefill(ids[:start])
        while len(self._ids) < len(ids):
            step = ids[len(self._ids) : len(self._ids) + self.rows_per_pass]
            yield from self._append(step, len(step))

    def _append(self, ids: list[int], rows: int) -> Rows:
        logits = self._feed(ids, rows)
        self._ids += ids
        return logits

    def _known(self, path: Sequence[int]) -> list[int]:
        return [token if token < self._embeddings else 0 for token in path]

    def _base_for(self, path: Sequence[int]) -> int:
        """Where the window begins: at 0, or for long paths at a multiple of half the window.

        Rolling back over such an edge would cost a prefill each way, so the old place is kept while it serves.
        """
        length, half = len(path), max(1, self.window // 2)
        usual = 0 if length <= self.window else -(-(length - self.window) // half) * half
        if usual == self._base or not self.window // 4 <= length - self._base <= self.window:
            return usual
        kept = common_prefix(self._ids, self._known(path[self._base :]))
        return self._base if 2 * kept > len(self._ids) else usual

    def _roll_back(self, keep: int) -> None:
        if keep < len(self._ids):
            self._forget(keep)
            del self._ids[keep:]
        self._logits = None

    def _prefill(self, ids: Sequence[int]) -> None:
        """Feeds the next chunk without its logits; the chunk's size follows the machine's speed."""
        began = time.monotonic()
        width = min(self._chunk, self.widest_pass)
        chunk = list(ids[len(self._ids) : min(len(self._ids) + width, len(ids) - 1)])
        self._append(chunk, 0)
        self._adapt(time.monotonic() - began)

    def _adapt(self, seconds: float) -> None:
        quick, slow = _CHUNK_SECONDS
        if seconds < quick:
            self._chunk *= 2
        elif seconds > slow:
            self._chunk = max(self._chunk // 2, _SMALLEST_CHUNK)
        self._chunk = min(self._chunk, self.widest_pass)
