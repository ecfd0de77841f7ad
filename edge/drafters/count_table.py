"""Counts of what followed short contexts in all committed text: free online distillation of the target.

Contexts of 1 to 4 ids, at most eight followers each, bounded in number by forgetting what is old and rare. The
distribution interpolates the context lengths by the rule of Witten and Bell (IEEE Trans. Inf. Theory 37, 1991): a
context seen n times with u distinct followers keeps n / (n + u) of the mass and leaves the rest to the shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acespec.edge.drafters.contexts import context_keys

LONGEST = 4
WIDTH = 8
COUNT_CAP = 0xFFFF

Row = tuple[int, ...]
"""token, count, token, count, ... of one context: flat tuples of ints keep a large table small."""


class CountTable:
    """Context key -> followers and counts, least recently touched first."""

    def __init__(self, max_contexts: int = 200_000) -> None:
        self.max_contexts = max_contexts
        self._rows: dict[int, Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Iterator[tuple[int, Row]]:
        """All (key, row), least recently touched first."""
        return iter(self._rows.items())

    def learn(self, tokens: Sequence[int], end: int, token: int) -> None:
        """Counts that `token` followed tokens[:end]."""
        for key in context_keys(tokens, end, LONGEST):
            # Taken out and put back: the dict's order is the order of use.
            self._rows[key] = _counted(self._rows.pop(key, ()), token)
        if len(self._rows) > self.max_contexts:
            self._prune()

    def distribution(self, tokens: Sequence[int], end: int) -> dict[int, float]:
        """Probability of each known follower of tokens[:end]; what is missing to 1 belongs to unknown tokens."""
        blend: dict[int, float] = {}
        for key in context_keys(tokens, end, LONGEST):
            row = self._rows.get(key)
            if row is None:
                break
            counts = row[1::2]
            scale = 1.0 / (sum(counts) + len(counts))
            left = len(counts) * scale
            for token in blend:
                blend[token] *= left
            for token, count in zip(row[::2], counts, strict=True):
                blend[token] = blend.get(token, 0.0) + count * scale
        return blend

    def merge(self, key: int, row: Row) -> None:
        """Joins a row of another table: the larger count of each follower.

        Taking the maximum counts nothing twice when both tables grew from the same ancestor, and may be repeated.
        """
        mine = self._rows.get(key)
        if mine is None:
            self._rows[key] = row
            return
        best = dict(zip(mine[::2], mine[1::2], strict=True))
        for token, count in zip(row[::2], row[1::2], strict=True):
            best[token] = max(count, best.get(token, 0))
        top = sorted(best.items(), key=lambda item: -item[1])[:WIDTH]
        self._rows[key] = tuple(number for pair in top for number in pair)

    def fit(self) -> None:
        """Forgets until the bound holds."""
        if len(self._rows) > self.max_contexts:
            self._prune()

    def _prune(self) -> None:
        """Drops contexts seen once, oldest first, then the oldest of any kind, down to three quarters of the bound."""
        surplus = len(self._rows) - self.max_contexts * 3 // 4
        rare = [key for key, row in self._rows.items() if len(row) == 2 and row[1] == 1][:surplus]
        for key in rare:
            del self._rows[key]
        for key in list(self._rows)[: surplus - len(rare)]:
            del self._rows[key]


def _counted(row: Row, token: int) -> Row:
    """The row with one more `token`; a full row gives up its rarest follower, a saturated one is halved."""
    for at in range(0, len(row), 2):
        if row[at] == token:
            row = (*row[: at + 1], row[at + 1] + 1, *row[at + 2 :])
            return _halved(row) if row[at + 1] > COUNT_CAP else row
    if len(row) >= 2 * WIDTH:
        rarest = min(range(0, len(row), 2), key=lambda at: row[at + 1])
        row = row[:rarest] + row[rarest + 2 :]
    return (*row, token, 1)


def _halved(row: Row) -> Row:
    pairs = [(token, count // 2) for token, count in zip(row[::2], row[1::2], strict=True) if count > 1]
    return tuple(number for pair in pairs for number in pair)
