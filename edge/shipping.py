"""Which drafts leave in the next message, and when there should be one (sans-IO)."""

from __future__ import annotations

from collections.abc import Sequence

from acespec.edge.draft_desk import DraftDesk
from acespec.proto.nodes import Node, pack, token_bits

PARENT_BITS = 4
"""About what naming a parent costs: one bit in a chain, three to nine elsewhere."""
ENVELOPE_BYTES = 16
"""Of a draft message, besides its nodes."""


class Shipping:
    """The drafts of one session on their way up. Node ids count from 0 in each epoch."""

    def __init__(self, desk: DraftDesk, vocab_size: int) -> None:
        self._desk = desk
        self._vocab_size = vocab_size
        self._node_bytes = (token_bits(vocab_size) + PARENT_BITS) / 8
        self._next_node = 0

    def restart(self) -> None:
        """A new epoch: the other end holds no node."""
        self._desk.tree.unship()
        self._next_node = 0

    def waiting(self) -> bool:
        """There are drafts to ship that reach beyond where the cloud will be when they arrive."""
        tree = self._desk.tree
        return tree.has_unshipped() and tree.deepest() > self._desk.prices.headway

    def load(self, limit: int) -> bytes:
        """The packed nodes of a message that leaves now, at most `limit` of them; they count as shipped."""
        keys = self._choose()[:limit]
        if not keys:
            return b""
        nodes: Sequence[Node] = self._desk.tree.ship(self._next_node, keys)
        data = pack(nodes, self._next_node, self._vocab_size)
        self._next_node += len(nodes)
        return data

    def _choose(self) -> list[int]:
        return [key for key, _ in self._desk.tree.unshipped()]
