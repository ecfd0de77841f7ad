"""Earlier occurrences in the same text: which token followed the last few ids before.

An index over committed text with exact rollback. Every position is entered under the contexts of 2 to 5 ids before
it; each entry remembers the one it hides, so the entries of a context form a chain from the newest occurrence back,
and taking the last token away restores the index as it was. (Prompt lookup, with the longest match first.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from acespec.edge.drafters.contexts import context_keys

SHORTEST, LONGEST = 2, 5
"""Context lengths that are indexed; longer agreement is measured from the ids themselves."""

LENGTH_CAP = 32
"""Agreement beyond this many ids is not counted: it says nothing more."""

_VISITS = 8
_NONE = -1


class Match(NamedTuple):
    """A token that followed an earlier occurrence of the path's end.

    Attributes:
        token: the id that followed.
        length: how many ids before it agree with the path's end, at most `LENGTH_CAP`.
        contested: True if another token followed a context of the same indexed length.
    """

    token: int
    length: int
    contested: bool


class OwnContext:
    """The committed text of one session and its index. All costs are independent of the text's length."""

    def __init__(self) -> None:
        self.text: list[int] = []
        self._newest: dict[int, int] = {}
        self._hidden: list[tuple[int, ...]] = []

    def append(self, token: int) -> None:
        """Adds one committed token."""
        at = len(self.text)
        keys = self._keys(self.text, at)
        self._hidden.append(tuple(self._newest.get(key, _NONE) for key in keys))
        for key in keys:
            self._newest[key] = at
        self.text.append(token)

    def truncate(self, length: int) -> None:
        """Takes tokens away until `length` are left; the index is as if they had never come."""
        while len(self.text) > length:
            self.text.pop()
            hidden = self._hidden.pop()
            for key, older in zip(self._keys(self.text, len(self.text)), hidden, strict=True):
                if older == _NONE:
                    del self._newest[key]
                else:
                    self._newest[key] = older

    def matches(self, path: Sequence[int], k: int) -> list[Match]:
        """Up to k distinct tokens that followed the end of `path` before, longest agreement first, then newest.

        `path` may go on beyond the indexed text (a draft) and need not be indexed itself.
        """
        found: list[Match] = []
        seen: set[int] = set()
        keys = self._keys(path, len(path))
        for order in range(len(keys) - 1, -1, -1):
            level = self._followers(path, keys[order], order)
            contested = len(level) > 1
            for token in sorted(level, key=lambda t: -level[t]):
                if token not in seen:
                    seen.add(token)
                    found.append(Match(token, level[token], contested))
            if len(found) >= k:
                break
        return found[:k]

    def _followers(self, path: Sequence[int], key: int, order: int) -> dict[int, int]:
        """The longest agreement seen for each token that followed the context, newest occurrence first."""
        longest: dict[int, int] = {}
        at = self._newest.get(key, _NONE)
        for _ in range(_VISITS):
            if at == _NONE:
                break
            length = self._agreement(path, at)
            token = self.text[at]
            if length >= SHORTEST and length > longest.get(token, 0):
                longest[token] = length
            if length == LENGTH_CAP:
                break
            at = self._hidden[at][order]
        return longest

    def _agreement(self, path: Sequence[int], at: int) -> int:
        """How many ids before position `at` of the text equal those at the end of the path."""
        text, end = self.text, len(path)
        limit = min(LENGTH_CAP, at, end)
        length = 0
        while length < limit and text[at - 1 - length] == path[end - 1 - length]:
            length += 1
        return length

    @staticmethod
    def _keys(tokens: Sequence[int], end: int) -> list[int]:
        return context_keys(tokens, end, LONGEST)[SHORTEST - 1 :]
