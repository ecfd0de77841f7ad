"""How wide a draft may be: a chain, a chain with siblings, or a tree. The text never depends on it."""

from __future__ import annotations

from dataclasses import dataclass

from acespec.proto.errors import UsageError

MOST_SIBLINGS = 8
WIDTH = 4
"""Guesses at one place of a tree that is not told otherwise."""


@dataclass(frozen=True, slots=True)
class TreeShape:
    """Guesses asked for at one place, and whether drafting goes on behind any but the first of them."""

    width: int = 1
    branches: bool = False


CHAIN = TreeShape()
TREE = TreeShape(WIDTH, branches=True)


def tree_shape(option: str) -> TreeShape:
    """What `--draft-tree` says: `off`, `on`, or `siblings:K` with K guesses at each place of a chain.

    Raises:
        UsageError: it is none of these.
    """
    if option in ("on", "off"):
        return TREE if option == "on" else CHAIN
    kind, _, number = option.partition(":")
    if kind == "siblings" and number.isdecimal() and 1 <= int(number) <= MOST_SIBLINGS:
        return TreeShape(int(number))
    raise UsageError(f"--draft-tree {option}: use on, off, or siblings:K with K from 1 to {MOST_SIBLINGS}")
