"""In which order the rows of a tree pass through one place for keys and values.

A row may see its ancestors only, each at its own position; siblings have one position and there is one page. So the
tree is visited depth first: whatever was laid since a node's ancestors belongs to subtrees that hang beside it, at
their depth or deeper, where the node does not look or lays its own. Descending runs are laid and attended at once.
"""

from __future__ import annotations

from collections.abc import Sequence


def segments(parents: Sequence[int]) -> list[list[int]]:
    """Rows of a tree in visiting order, cut into maximal runs in which each row follows the one before.

    The first child of a row is visited last, so the chain of first children is what stays laid in the end.
    """
    children: list[list[int]] = [[] for _ in parents]
    for row, parent in enumerate(parents[1:], 1):
        children[parent].append(row)
    found: list[list[int]] = []
    waiting = [0]
    descending = False
    while waiting:
        row = waiting.pop()
        if descending:
            found[-1].append(row)
        else:
            found.append([row])
        waiting += children[row]
        descending = bool(children[row])
    return found
