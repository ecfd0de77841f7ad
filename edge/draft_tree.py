"""Guesses that are not verified yet: a tree of nodes behind the committed prefix, of which one path is being extended.

A node stays until a commit contradicts it or passes its position, acknowledged or not, so that a commit can name it.
Its wire id is given when it is shipped; a new epoch takes all wire ids back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acespec.proto import nodes
from acespec.proto.nodes import ROOT


@dataclass(slots=True)
class DraftNode:
    """One guess. `parent` is a key of the tree or ROOT; `depth` counts unverified tokens, itself included, when it was
    drafted; `confidence` is the calibrated `probability`."""

    parent: int
    token: int
    position: int
    depth: int
    probability: float
    confidence: float
    wire_id: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a guess whose path was right: `right` tells whether it was, too."""

    depth: int
    probability: float
    right: bool


class DraftTree:
    """Nodes by key; keys rise, so a parent precedes its children."""

    def __init__(self) -> None:
        self._nodes: dict[int, DraftNode] = {}
        self._by_wire: dict[int, int] = {}
        self._next_key = 0
        self._tip = ROOT
        self._known: tuple[int, float] | None = None
        """Length and survival of the path to the tip, until that changes otherwise than by growing."""

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def tip(self) -> DraftNode | None:
        """The last node of the path that is being extended; None if that is the committed prefix itself."""
        return self._nodes.get(self._tip)

    def path(self) -> list[DraftNode]:
        """The nodes from the committed prefix to the tip."""
        return self._up_from(self._tip)

    def survival(self) -> float:
        """Estimated chance that the whole path to the tip is accepted."""
        return self._measure()[1]

    def add(self, token: int, position: int, probability: float, confidence: float) -> None:
        """Extend the path; the new node is its tip."""
        length, survival = self._measure()
        depth = length + 1
        self._known = depth, survival * confidence
        node = DraftNode(self._tip, token, position, depth, probability, confidence)
        self._tip = self._next_key
        self._nodes[self._next_key] = node
        self._next_key += 1

    def has_unshipped(self) -> bool:
        """True if a node has no wire id yet."""
        return len(self._by_wire) < len(self._nodes)

    def ship(self, first_id: int, limit: int) -> list[nodes.Node]:
        """The next unshipped nodes, at most `limit`, with wire ids from `first_id` on."""
        shipped: list[nodes.Node] = []
        for key, node in self._nodes.items():
            if node.wire_id is not None:
                continue
            if len(shipped) == limit:
                break
            node.wire_id = first_id + len(shipped)
            self._by_wire[node.wire_id] = key
            shipped.append(nodes.Node(self._wire_parent(node), node.token))
        return shipped

    def unship(self) -> None:
        """A new epoch: the other end holds no node."""
        self._by_wire.clear()
        for node in self._nodes.values():
            node.wire_id = None

    def tokens_to(self, wire_id: int) -> list[int]:
        """The tokens from the committed prefix to a shipped node. Raises KeyError if it is not held."""
        return [node.token for node in self._up_from(self._by_wire[wire_id])]

    def commit(self, ids: Sequence[int]) -> tuple[list[Outcome], bool]:
        """`ids` is now final: drop what it passes or contradicts.

        Returns the outcomes of the guesses that were passed, and whether the path to the tip was contradicted.
        """
        self._known = None
        outcomes: list[Outcome] = []
        true_keys: set[int] = set()
        for key, node in list(self._nodes.items()):
            if node.parent != ROOT and node.parent not in self._nodes and node.parent not in true_keys:
                self._drop(key)
                continue
            if node.position < len(ids):
                right = node.token == ids[node.position]
                outcomes.append(Outcome(node.depth, node.probability, right))
                if right:
                    true_keys.add(key)
                self._drop(key)
            elif node.parent in true_keys:
                node.parent = ROOT
        contradicted = self._tip != ROOT and self._tip not in self._nodes and self._tip not in true_keys
        if self._tip not in self._nodes:
            self._tip = ROOT
        return outcomes, contradicted

    def cut(self, end: int) -> bool:
        """Drop the nodes at positions from `end` on; True if there were any."""
        self._known = None
        late = [key for key, node in self._nodes.items() if node.position >= end]
        while (tip := self.tip) is not None and tip.position >= end:
            self._tip = tip.parent
        for key in late:
            self._drop(key)
        return bool(late)

    def clear(self) -> None:
        """Drop every node."""
        self._nodes.clear()
        self._by_wire.clear()
        self._tip = ROOT
        self._known = None

    def _measure(self) -> tuple[int, float]:
        if self._known is None:
            path, survival = self.path(), 1.0
            for node in path:
                survival *= node.confidence
            self._known = len(path), survival
        return self._known

    def _drop(self, key: int) -> None:
        node = self._nodes.pop(key)
        if node.wire_id is not None:
            del self._by_wire[node.wire_id]

    def _up_from(self, key: int) -> list[DraftNode]:
        path: list[DraftNode] = []
        while key != ROOT:
            path.append(self._nodes[key])
            key = self._nodes[key].parent
        return path[::-1]

    def _wire_parent(self, node: DraftNode) -> int:
        if node.parent == ROOT:
            return ROOT
        wire_id = self._nodes[node.parent].wire_id
        if wire_id is None:
            raise RuntimeError("a draft node is shipped before its parent")
        return wire_id
