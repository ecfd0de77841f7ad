"""The drafts of one turn that have arrived: walked through the commits, pruned by them, grafted at the tip.

A node is *pending* while it lies at or beyond the tip and nothing committed contradicts it, *matched* once a commit
equals it, and gone otherwise. A draft whose base is behind the tip is therefore never stale as a whole: it is walked
through the tokens committed since, and only what contradicts them is dropped with its subtree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from acespec.proto.errors import BadFrame
from acespec.proto.nodes import ROOT, Node

MEMORY = 64
"""Matched nodes this far behind what the edge has acknowledged are still known as parents."""


@dataclass(slots=True)
class _Pending:
    position: int
    token: int
    children: list[int] = field(default_factory=list)


class DraftTree:
    """Pending and matched draft nodes over `committed`, the turn's token list, which the owner extends.

    Attributes:
        last_matched: (node id, position) of the deepest matched node, or None.
        received: nodes that were added, dead ones included.
    """

    def __init__(self, committed: Sequence[int], max_pending: int) -> None:
        self._committed = committed
        self._tip = len(committed)
        self._max_pending = max_pending
        self._pending: dict[int, _Pending] = {}
        self._heads: list[int] = []
        self._matched: dict[int, int] = {}
        self.last_matched: tuple[int, int] | None = None
        self.received = 0

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def matched(self) -> int:
        """Matched nodes that are still known as parents."""
        return len(self._matched)

    def add(self, first_id: int, nodes: Sequence[Node], base: int) -> None:
        """Take nodes with ids first_id, first_id + 1, ...; roots among them follow the prefix of length `base`.

        Raises:
            BadFrame: `base` lies beyond the tip, which no honest edge can know of.
        """
        if base > self._tip:
            raise BadFrame(f"draft base {base} is beyond the committed length {self._tip}")
        for node_id, node in enumerate(nodes, first_id):
            self._add(node_id, node, base)
        self.received += len(nodes)

    def advance(self) -> None:
        """Follow the committed list to its new end: match what it confirms, drop what it contradicts."""
        while self._tip < len(self._committed):
            token = self._committed[self._tip]
            hits = [h for h in self._heads if self._pending[h].token == token]
            for head in self._heads:
                if head not in hits:
                    self._drop(head)
            self._heads = []
            for head in hits:
                self._heads += self._pending.pop(head).children
                self._match(head, self._tip)
            self._tip += 1

    def chain(self, limit: int) -> list[int]:
        """Tokens of one pending path from the tip, at most `limit`: the first-sent child at each step."""
        path: list[int] = []
        level = self._heads
        while level and len(path) < limit:
            node = self._pending[level[0]]
            path.append(node.token)
            level = node.children
        return path

    @property
    def heads(self) -> Sequence[int]:
        """Pending nodes that follow the tip, in the order in which they were sent."""
        return self._heads

    def children(self, node_id: int) -> Sequence[int]:
        """Pending nodes that follow a pending one, in the order in which they were sent."""
        return self._pending[node_id].children

    def token(self, node_id: int) -> int:
        """The token of a pending node."""
        return self._pending[node_id].token

    def depth(self, limit: int) -> int:
        """Length of `chain(limit)`."""
        depth, level = 0, self._heads
        while level and depth < limit:
            depth, level = depth + 1, self._pending[level[0]].children
        return depth

    def forget(self, received: int) -> None:
        """The edge holds the first `received` tokens: matched nodes well behind them will not be named again."""
        stale = [i for i, position in self._matched.items() if position < received - MEMORY]
        for node_id in stale:
            del self._matched[node_id]

    def _add(self, node_id: int, node: Node, base: int) -> None:
        if node.parent == ROOT:
            self._place(node_id, node.token, base)
        elif node.parent in self._matched:
            self._place(node_id, node.token, self._matched[node.parent] + 1)
        elif (parent := self._pending.get(node.parent)) and len(self._pending) < self._max_pending:
            parent.children.append(node_id)
            self._pending[node_id] = _Pending(parent.position + 1, node.token)

    def _place(self, node_id: int, token: int, position: int) -> None:
        """Put a node whose parent path is committed: walk it if it lies behind the tip, else make it a head."""
        if position < self._tip:
            if self._committed[position] == token:
                self._match(node_id, position)
        elif len(self._pending) < self._max_pending:
            self._heads.append(node_id)
            self._pending[node_id] = _Pending(position, token)

    def _match(self, node_id: int, position: int) -> None:
        self._matched[node_id] = position
        if self.last_matched is None or position >= self.last_matched[1]:
            self.last_matched = (node_id, position)

    def _drop(self, node_id: int) -> None:
        stack = [node_id]
        while stack:
            stack += self._pending.pop(stack.pop()).children
