"""Guesses that are not verified yet: a tree of nodes behind the committed prefix, and its frontier.

A node stays until a commit contradicts it or passes its position, acknowledged or not, so that a commit can name it.
When a commit contradicts the first guess but finds a sibling, what was drafted behind that sibling becomes the tree:
the branch cache (AceSpec, arXiv 2609.02514). The frontier holds the nodes behind which nothing was asked yet, the
most promising first. A node's wire id is given when it is shipped; a new epoch takes all wire ids back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from acespec.edge.brain.branch_cache import BranchCache
from acespec.edge.brain.draft_node import DraftNode
from acespec.edge.brain.frontier import Frontier
from acespec.edge.brain.ranking import Ranking
from acespec.edge.brain.survival import Guess, Outcome
from acespec.proto import nodes
from acespec.proto.nodes import ROOT

GOES_ON = 0.8
"""About the chance that a path goes on by one more token."""
REMEMBERED = 64
"""Matched nodes whose keys are still known, for drafts that were asked behind them."""


class DraftTree:
    """Nodes by key; keys rise, so a parent precedes its children. ROOT stands for the committed prefix.

    Attributes:
        cache: counts of the branch cache since the tree was made.
        base: committed length; the children of ROOT stand there.
        changes: rises with whatever changes.
    """

    def __init__(self) -> None:
        self.cache = BranchCache()
        self.base = 0
        self.changes = 0
        self._nodes: dict[int, DraftNode] = {}
        self._children: dict[int, list[int]] = {ROOT: []}
        self._standing: dict[int, int] = {}  # nodes at each position
        self._unshipped = Ranking()
        self._by_wire: dict[int, int] = {}
        self._next_key = 0
        self._root_asked = False
        self._aim = 0
        self._frontier = Frontier()
        self._silent: set[int] = set()
        self._passed: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, key: int) -> bool:
        return key == ROOT or key in self._nodes

    # -- what is there -------------------------------------------------------------------------------------------

    def node(self, key: int) -> DraftNode:
        """The node of a key. Raises KeyError if it is not held."""
        return self._nodes[key]

    def children(self, key: int) -> Sequence[int]:
        """Keys of the guesses behind a node, best first."""
        return self._children.get(key, ())

    def child(self, key: int, token: int) -> int | None:
        """The guess `token` behind a node, if it is there."""
        for k in self._children.get(key, ()):
            if self._nodes[k].token == token:
                return k
        return None

    def depth(self, key: int) -> int:
        """Unverified tokens of the path to a node, itself included; 0 for ROOT."""
        return 0 if key == ROOT else self._nodes[key].position - self.base + 1

    def survival(self, key: int = ROOT) -> float:
        """Estimated chance that the whole path to a node is right."""
        return 1.0 if key == ROOT else self._nodes[key].survival

    def tokens(self, key: int) -> list[int]:
        """The tokens from the committed prefix to a node."""
        return [node.token for node in self._up_from(key)]

    def main(self) -> list[int]:
        """Keys of the path of first guesses."""
        path: list[int] = []
        level = self.children(ROOT)
        while level:
            path.append(level[0])
            level = self.children(level[0])
        return path

    def tip(self) -> int:
        """The key at the end of the path of first guesses; ROOT if there is none."""
        return next(reversed(self.main()), ROOT)

    def deepest(self) -> int:
        """Length of the longest path."""
        return max(self._standing, default=self.base - 1) - self.base + 1

    @property
    def shipped(self) -> int:
        """Nodes that the other end may hold and that nothing is known of yet."""
        return len(self._by_wire)

    def is_open(self, key: int, end: int) -> bool:
        """A node that is held, may be asked about and was not, and leaves room for another below `end` - 1."""
        if key == ROOT:
            return not self._root_asked and self.base < end
        node = self._nodes.get(key)
        return node is not None and node.grows and not node.asked and node.position + 1 < end

    def was_passed(self, key: int) -> bool:
        """True if a commit has lately confirmed the node."""
        return key in self._passed

    # -- growing -------------------------------------------------------------------------------------------------

    def start(self, base: int) -> None:
        """A new turn behind `base` committed tokens."""
        self.clear()
        self.base = base

    def add(
        self,
        parent: int,
        token: int,
        guess: Guess,
        given: float,
        *,
        confidence: float | None = None,
        grows: bool = True,
    ) -> int:
        """Put a guess behind `parent`, after those that are there already; its key.

        Args:
            confidence: what `confidence` says of it, if that was asked already.
            grows: it may be asked about.
        """
        if confidence is None:
            confidence = self.confidence(parent, given)
        siblings = self._children.setdefault(parent, [])
        key = self._next_key
        self._next_key += 1
        self.changes += 1
        position = self.base if parent == ROOT else self._nodes[parent].position + 1
        survival = self.survival(parent) * confidence
        self._nodes[key] = DraftNode(parent, token, position, guess, given, confidence, survival, grows)
        self._standing[position] = self._standing.get(position, 0) + 1
        self._unshipped.add(survival, key)
        siblings.append(key)
        if grows:
            self._frontier.add(self._promise(key), key)
        return key

    def confidence(self, parent: int, given: float) -> float:
        """Chance that the next guess behind `parent` is right, which is `given` if those before it are wrong.

        It is never above that of the guess before it: what is shipped first counts as the better one.
        """
        siblings = self._children.get(parent)
        if not siblings:
            return given
        chances = [self._nodes[k].confidence for k in siblings]
        return min(chances[-1], max(0.0, 1.0 - sum(chances)) * given)

    def aim_beyond(self, depth: int) -> None:
        """Nodes up to `depth` gain nothing by themselves: what promises most is what gets beyond it."""
        if depth != self._aim:
            self._aim = depth
            self._refill()

    def best(self, end: int) -> int | None:
        """The most promising node that nobody was asked about, at a position below `end` - 1; None if there is none."""
        # What is too deep now comes back with the next commit.
        return self._frontier.best(lambda key: self.is_open(key, end))

    def asked(self, key: int, *, silent: bool) -> None:
        """A drafter has said what follows a node; `silent`: nothing, and it may know better after the next commit."""
        self.changes += 1
        if key == ROOT:
            self._root_asked = True
        else:
            self._nodes[key].asked = True
        if silent:
            self._silent.add(key)

    def ask_again(self, key: int) -> None:
        """A drafter may be asked once more what follows a node."""
        if key == ROOT:
            self._root_asked = False
        else:
            self._nodes[key].asked = False
        self._silent.discard(key)
        self._refill()

    def make_room(self, most: int, survival: float, end: float = math.inf) -> bool:
        """Have less than `most` nodes at positions below `end`, at the cost of the unlikeliest unshipped leaf there;
        False if a node of `survival` is not worth that."""
        while len(self._nodes) >= most and sum(n for at, n in self._standing.items() if at < end) >= most:
            worst = self._unlikeliest_leaf(end)
            if worst is None or self.survival(worst) >= survival:
                return False
            self._drop(worst)
        return True

    # -- shipping ------------------------------------------------------------------------------------------------

    def has_unshipped(self) -> bool:
        """True if a node has no wire id yet."""
        return len(self._unshipped) > 0

    def unshipped(self) -> Iterator[tuple[int, DraftNode]]:
        """Nodes without a wire id, the likeliest first, parents before their children."""
        return ((key, self._nodes[key]) for key in self._unshipped)

    def ship(self, first_id: int, keys: Sequence[int]) -> list[nodes.Node]:
        """Give wire ids from `first_id` on to unshipped nodes, parents first; the nodes as they go out."""
        shipped: list[nodes.Node] = []
        for wire_id, key in enumerate(keys, first_id):
            node = self._nodes[key]
            shipped.append(nodes.Node(self._wire_parent(node), node.token))
            node.wire_id = wire_id
            self._by_wire[wire_id] = key
            self._unshipped.remove(node.survival, key)
        self.changes += 1
        return shipped

    def unship(self) -> None:
        """A new epoch: the other end holds no node."""
        self._by_wire.clear()
        self.changes += 1
        for node in self._nodes.values():
            node.wire_id = None
        self._unshipped.refill((node.survival, key) for key, node in self._nodes.items())

    def tokens_to(self, wire_id: int) -> list[int]:
        """The tokens from the committed prefix to a shipped node. Raises KeyError if it is not held."""
        return self.tokens(self._by_wire[wire_id])

    # -- commits -------------------------------------------------------------------------------------------------

    def commit(self, ids: Sequence[int]) -> list[Outcome]:
        """`ids` is now final: drop what it passes or contradicts. What became of the guesses that it decides."""
        outcomes: list[Outcome] = []
        tip: int | None = ROOT
        last = ROOT
        for position in range(self.base, len(ids)):
            level = self._children.get(tip, []) if tip is not None else []
            right = next((k for k in level if self._nodes[k].token == ids[position]), None)
            outcomes += self._outcomes(level, right)
            if level and level[0] != right:
                self._count_surprise(right)
            for key in [k for k in level if k != right]:
                self._drop(key)
            tip = right
            last = last if right is None else right
        if len(ids) > self.base:
            self._reroot(tip, last, len(ids))
        return outcomes

    def cut(self, end: int) -> bool:
        """Drop the nodes at positions from `end` on; True if there were any."""
        late = [key for key, node in self._nodes.items() if node.position == end]
        for key in late:
            self._drop(key)
        for node in self._nodes.values():
            if node.position == end - 1 and node.guess.rank == 0:
                node.asked = False
        self._refill()
        return bool(late)

    def clear(self) -> None:
        """Drop every node."""
        self._nodes.clear()
        self._children = {ROOT: []}
        self._standing.clear()
        self._unshipped.refill(())
        self._by_wire.clear()
        self._silent.clear()
        self._passed.clear()
        self._root_asked = False
        self._refill()

    def _reroot(self, tip: int | None, last: int, base: int) -> None:
        """What follows `tip` (None: a token that was no guess) follows the committed prefix now; what is up to `last`
        has been passed."""
        self._root_asked = tip is not None and self._was_asked(tip) and tip not in self._silent
        certain = 1.0 if tip is None else self.survival(tip)
        children = [] if tip is None else list(self._children.get(tip, ()))
        while last != ROOT:
            last = self._pass(last)
        self._children[ROOT] = children
        self.base = base
        for key in children:
            self._nodes[key].parent = ROOT
        if 0.0 < certain < 1.0:
            for node in self._nodes.values():
                node.survival /= certain
        self._unshipped.refill((self._nodes[key].survival, key) for key in self._unshipped)
        for key in self._silent & self._nodes.keys():
            self._nodes[key].asked = False
        self._silent.clear()
        self._refill()

    def _pass(self, key: int) -> int:
        """Take a confirmed node out, not what follows it; its parent."""
        node = self._forget(key)
        self._passed[key] = None
        if len(self._passed) > REMEMBERED:
            del self._passed[next(iter(self._passed))]
        return node.parent

    def _outcomes(self, level: Sequence[int], right: int | None) -> list[Outcome]:
        """The guesses at one place, up to the right one."""
        tried = level if right is None else level[: level.index(right) + 1]
        return [Outcome(self._nodes[key].guess, self._nodes[key].given, key == right) for key in tried]

    def _count_surprise(self, right: int | None) -> None:
        if right is None:
            self.cache = self.cache.missed()
            return
        behind = sum(1 for _ in self._below(right)) - 1
        self.cache = self.cache.hit(shipped=self._nodes[right].wire_id is not None, saved=behind)

    def _refill(self) -> None:
        self.changes += 1
        places = [(self._promise(key), key) for key, node in self._nodes.items() if node.grows and not node.asked]
        self._frontier.refill(places if self._root_asked else [*places, (1.0, ROOT)])

    def _promise(self, key: int) -> float:
        """About the chance that a path through a node gets beyond what gains nothing."""
        node = self._nodes[key]
        missing = self._aim - (node.position - self.base)
        return node.survival * GOES_ON**missing if missing > 0 else node.survival

    def _unlikeliest_leaf(self, end: float) -> int | None:
        """Of what is not shipped and stands below `end`, of equals the oldest. What follows a node is never above it:
        it is near the end."""
        worst: int | None = None
        for key in reversed(self._unshipped):
            if self._nodes[key].position >= end:
                continue
            if worst is not None and self._nodes[key].survival > self._nodes[worst].survival:
                break
            worst = worst if self._children.get(key) else key
        return worst

    def _was_asked(self, key: int) -> bool:
        return self._root_asked if key == ROOT else self._nodes[key].asked

    def _below(self, key: int) -> Iterator[int]:
        """A node and everything behind it."""
        stack = [key]
        while stack:
            at = stack.pop()
            yield at
            stack += self._children.get(at, ())

    def _drop(self, key: int) -> None:
        siblings = self._children.get(self._nodes[key].parent)
        if siblings and key in siblings:
            siblings.remove(key)
        for each in list(self._below(key)):
            self._forget(each)
        self.changes += 1

    def _forget(self, key: int) -> DraftNode:
        """Take a node out of everything but its parent's children."""
        node = self._nodes.pop(key)
        self._children.pop(key, None)
        if node.wire_id is None:
            self._unshipped.remove(node.survival, key)
        else:
            del self._by_wire[node.wire_id]
        self._standing[node.position] -= 1
        if not self._standing[node.position]:
            del self._standing[node.position]
        return node

    def _up_from(self, key: int) -> list[DraftNode]:
        path: list[DraftNode] = []
        while key != ROOT:
            path.append(self._nodes[key])
            key = path[-1].parent
        return path[::-1]

    def _wire_parent(self, node: DraftNode) -> int:
        if node.parent == ROOT:
            return ROOT
        wire_id = self._nodes[node.parent].wire_id
        if wire_id is None:
            raise RuntimeError("a draft node is shipped before its parent")
        return wire_id
