"""Which committed tokens the cached KV pages hold: a radix tree of pages for each tenant, and the order they go in.

An edge of the tree is a whole page of tokens, a node the page that holds their KV behind the path that leads to it.
Nodes are found by equality of all their tokens, so a hit is never a guess, and below a root of the tenant's own salt,
so no tenant finds what another has left. Whole pages are shared: a session *pins* the path that it uses, and nobody
writes to it again.

The last page of a turn is mostly not full. It is kept as a *tail*, which cannot be shared, as whoever continues it
writes to it. So the first turn that begins like it takes it out of the tree, and overwrites it from where they part.

Unused pages are evicted, the least recently used first. One queue serves for that exactly: using a node uses all nodes
above it, and when they are put down, the deeper ones come first. So the oldest unused node has no child: an unused
child would be older still, and a child in use would mean that its parent is in use too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from acespec.cloud.runner import PAGE
from acespec.proto.prefix import common_prefix


@dataclass(slots=True, eq=False)
class Node:
    """A cached page: `tokens` is what it holds, behind its parent's. Fewer than PAGE make a tail, none a root.

    Attributes:
        users: sessions that use the page now.
        children: whole pages that follow this one, by their tokens.
        tails: pages begun behind this one, in the order of their tokens, no two equal.
    """

    salt: str
    parent: Node | None
    tokens: tuple[int, ...]
    page: int
    users: int = 0
    children: dict[tuple[int, ...], Node] = field(default_factory=dict)
    tails: list[Node] = field(default_factory=list)


class PrefixCache:
    """Cached pages by salt and tokens. It only names pages: those that it lets go of are returned to the caller."""

    def __init__(self) -> None:
        self._roots: dict[str, Node] = {}
        self._unused: OrderedDict[Node, None] = OrderedDict()

    @property
    def unused(self) -> int:
        """Cached pages that no session uses. All of them can be evicted, one after another."""
        return len(self._unused)

    def pin(self, salt: str, tokens: Sequence[int]) -> list[Node]:
        """The longest path of whole pages that `tokens` begin with, in use from now on until `store`."""
        path: list[Node] = []
        node = self._roots.get(salt)
        for begin in range(0, len(tokens) - PAGE + 1, PAGE):
            node = node.children.get(tuple(tokens[begin : begin + PAGE])) if node else None
            if node is None:
                break
            if not node.users:
                del self._unused[node]
            node.users += 1
            path.append(node)
        return path

    def take_tail(self, salt: str, path: list[Node], tokens: Sequence[int]) -> tuple[int, int] | None:
        """Take the tail behind `path` that has most tokens in common with `tokens`, which follow it, out of the cache.

        Of equals, one that holds nothing else goes first. Returns its page, now the caller's own, and how many first
        tokens of it serve; None if no tail has any.
        """
        parent = path[-1] if path else self._roots.get(salt)
        if parent is None or not parent.tails or not tokens:
            return None
        asked = tuple(tokens[:PAGE])
        # In sorted order nobody has more in common with a text than its two neighbours have.
        at = bisect_left(parent.tails, asked, key=_tokens)
        near = parent.tails[max(0, at - 1) : at + 1]
        common = max(common_prefix(tail.tokens, asked) for tail in near)
        if not common:
            return None
        tail = parent.tails[bisect_left(parent.tails, asked[:common], key=_tokens)]
        del self._unused[tail]
        self._unlink(tail)
        return tail.page, common

    def publish(self, salt: str, path: list[Node], tokens: Sequence[int], table: Sequence[int]) -> None:
        """Let others find the whole pages of `tokens` behind `path`; they are in use, and `path` grows by them.

        It ends at the first page whose equal is cached already: that one and what follows stay the caller's own, since
        a step in flight may read them.
        """
        _check_covered(tokens, table)
        for begin in range(len(path) * PAGE, len(tokens) - PAGE + 1, PAGE):
            parent, piece = self._tip(salt, path), tuple(tokens[begin : begin + PAGE])
            if piece in parent.children:
                return
            path.append(_link(parent, piece, table[begin // PAGE]))
            path[-1].users = 1

    def store(self, salt: str, path: list[Node], tokens: Sequence[int], table: Sequence[int]) -> list[int]:
        """A session that uses `path` is done: cache all its `tokens`, to be evicted last, and use nothing any more.

        Returns those of the session's own pages that the cache does not keep: their equal is there, or they lie beyond
        `tokens`.
        """
        _check_covered(tokens, table)
        line, kept = list(path), set()
        for begin in range(len(path) * PAGE, len(tokens), PAGE):
            page = table[begin // PAGE]
            line.append(self._find_or_link(self._tip(salt, line), tuple(tokens[begin : begin + PAGE]), page))
            if line[-1].page == page:
                kept.add(page)
        for node in path:
            node.users -= 1
        for node in reversed(line):
            if not node.users:
                self._unused[node] = None
                self._unused.move_to_end(node)
        return [page for page in table[len(path) :] if page not in kept]

    def evict(self) -> int:
        """Forget the unused page that was used least recently; its number.

        Raises:
            KeyError: all cached pages are in use.
        """
        node, _ = self._unused.popitem(last=False)
        self._unlink(node)
        return node.page

    def drop(self, salt: str | None) -> list[int]:
        """Forget all unused pages of a tenant, or of all; their numbers."""
        dropped = [node for node in self._unused if salt is None or node.salt == salt]
        for node in dropped:
            del self._unused[node]
            self._unlink(node)
        return [node.page for node in dropped]

    def _tip(self, salt: str, path: list[Node]) -> Node:
        """What follows `path` hangs here. A new root must be given a child at once, or it is never removed."""
        return path[-1] if path else self._roots.setdefault(salt, Node(salt, None, (), -1))

    def _find_or_link(self, parent: Node, piece: tuple[int, ...], page: int) -> Node:
        if len(piece) == PAGE:
            return parent.children.get(piece) or _link(parent, piece, page)
        at = bisect_left(parent.tails, piece, key=_tokens)
        known = at < len(parent.tails) and parent.tails[at].tokens == piece
        return parent.tails[at] if known else _link(parent, piece, page)

    def _unlink(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None, "a root is never unused"
        if len(node.tokens) == PAGE:
            del parent.children[node.tokens]
        else:
            del parent.tails[bisect_left(parent.tails, node.tokens, key=_tokens)]
        if parent.parent is None and not parent.children and not parent.tails:
            del self._roots[parent.salt]


def _tokens(node: Node) -> tuple[int, ...]:
    return node.tokens


def _link(parent: Node, piece: tuple[int, ...], page: int) -> Node:
    node = Node(parent.salt, parent, piece, page)
    if len(piece) == PAGE:
        parent.children[piece] = node
    else:
        parent.tails.insert(bisect_left(parent.tails, piece, key=_tokens), node)
    return node


def _check_covered(tokens: Sequence[int], table: Sequence[int]) -> None:
    if len(tokens) > len(table) * PAGE:
        raise RuntimeError(f"{len(table)} pages cannot hold the KV of {len(tokens)} tokens; this is a bug")
