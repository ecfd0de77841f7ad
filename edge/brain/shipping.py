"""Which drafts leave in the next message, and when there should be one (sans-IO).

A message leaves when what it carries is worth a message. If the cloud has said that the session's next step is due
later, it leaves as late as it safely can be, since until then the draft can still grow: by receipt + next_in - RTT -
serialisation - margin.
"""

from __future__ import annotations

from acespec.edge.brain.draft_desk import DraftDesk
from acespec.edge.brain.remembered import Remembered
from acespec.edge.turn_request import CODEC
from acespec.proto.framing import message_bytes
from acespec.proto.nodes import pack, token_bits

PARENT_BITS = 4
"""About what naming a parent costs: one bit in a chain, three to nine elsewhere."""
ENVELOPE_BYTES = 12
"""Of a draft message, besides its nodes."""
WORTH_WAITING = 0.1
"""A draft that can only grow where survival is less than this does not wait: an earlier step is worth more."""
MARGIN_S = 0.03
"""What a message is early by when it waits for a due time; jitter comes on top."""


class Shipping:
    """The drafts of one session on their way up. Node ids count from 0 in each epoch.

    Attributes:
        loaded: keys of the nodes of the newest message.
    """

    def __init__(self, desk: DraftDesk, vocab_size: int, *, tls: bool = False) -> None:
        self._desk = desk
        self._vocab_size = vocab_size
        self._tls = tls
        self._node_bytes = (token_bits(vocab_size) + PARENT_BITS) / 8
        self.loaded: list[int] = []
        self._next_node = 0
        self._due_at: float | None = None
        self._chosen = Remembered(self._choose)
        self._worth_it = Remembered(self._is_worth_it)

    def restart(self) -> None:
        """A new epoch: the other end holds no node."""
        self._desk.tree.unship()
        self._next_node = 0
        self._due_at = None

    def heard(self, now: float, next_in_s: float) -> None:
        """A commit arrived; the session's next step was expected in `next_in_s`."""
        self._due_at = now + next_in_s if next_in_s > 0 else None

    def due(self, now: float, *, room: bool) -> bool:
        """There are drafts to ship now; `room`: the link takes a message."""
        held_until = self.held_until()
        if held_until is not None and now < held_until:
            return False
        self._due_at = None  # Once it is over it holds nothing back, and wakes nobody.
        return room and self.waiting()

    def held_until(self) -> float | None:
        """When the drafts leave at last, if they are to wait for the due time."""
        prices = self._desk.prices
        if self._due_at is None or prices.cycle is None or self._desk.prospect() < WORTH_WAITING:
            return None
        nbytes = self._message_bytes(len(self._desk.tree))
        return self._due_at - prices.cycle - prices.send_s(nbytes) - MARGIN_S - prices.jitter

    def waiting(self) -> bool:
        """There are drafts that are worth a message of their own."""
        return self._worth_it.answer(self._desk.state)

    def _is_worth_it(self) -> bool:
        tree, prices = self._desk.tree, self._desk.prices
        if not tree.has_unshipped() or self._reach <= prices.headway:
            return False
        keys = self._chosen.answer(self._desk.state)
        # What the cloud has passed by then gains nothing, yet has to go along with what follows it.
        gain = sum(tree.survival(key) for key in keys if tree.depth(key) > prices.headway)
        return gain > 0 and self._desk.controller.send(gain, self._message_bytes(len(keys)), prices).go

    def load(self, limit: int) -> bytes:
        """The packed nodes of a message that leaves now, at most `limit` of them; they count as shipped."""
        self.loaded = []
        if self._reach <= self._desk.prices.headway:
            return b""  # The cloud will have passed them.
        self.loaded = keys = self._chosen.answer(self._desk.state)[:limit]
        if not keys:
            return b""
        nodes = self._desk.tree.ship(self._next_node, keys)
        data = pack(nodes, self._next_node, self._vocab_size, CODEC)
        self._next_node += len(nodes)
        return data

    def _choose(self) -> list[int]:
        """Unshipped nodes that pay and that the server takes, the likeliest first: what a node follows is at least as
        likely."""
        tree, controller, prices = self._desk.tree, self._desk.controller, self._desk.prices
        room = self._desk.most_shipped - tree.shipped
        chosen: list[int] = []
        for key, node in tree.unshipped():
            if len(chosen) >= room:
                break
            if tree.depth(key) > self._desk.cap:
                continue
            if not controller.ship(tree.depth(key), node.survival, self._node_bytes, prices).go:
                break
            chosen.append(key)
        return chosen

    @property
    def _reach(self) -> int:
        """Length of the longest path that the server takes."""
        return min(self._desk.tree.deepest(), self._desk.cap)

    def _message_bytes(self, nodes: int) -> int:
        return message_bytes(ENVELOPE_BYTES + round(nodes * self._node_bytes), self._tls)
