"""The cloud's end of the protocol over a known text, written from docs/protocol.md alone (sans-IO).

It commits `truth` whatever the edge drafts, in steps and gathers that its caller chooses, so that a test can put an
edge through any schedule and still know every id that must come out.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from acespec.proto import wire
from acespec.proto.digest import PrefixDigest, short
from acespec.proto.errors import ProtocolError
from acespec.proto.logprobs import TokenLogprobs
from acespec.proto.logprobs import pack as pack_logprobs
from acespec.proto.messages import Cancel, Commit, Draft, FinishReason, Open, Opened, Ping, Totals
from acespec.proto.nodes import ROOT, unpack
from acespec.proto.prompt import Encode, unpack_ids
from acespec.proto.tokens import pack_tokens


@dataclass
class _Node:
    position: int
    right: bool
    parent: int


def logprob_at(tokens: Sequence[int], position: int, top: int) -> TokenLogprobs:
    """What the fake reports of a position: made up, but never the same for two of them."""
    return TokenLogprobs(-float(position), tuple((tokens[position], -float(position)) for _ in range(top)))


@dataclass
class FakeCloud:
    """Serves one session. `truth` maps positions to ids; the turn ends at `max_tokens` or at `stop_id`."""

    truth: list[int]
    vocab_size: int
    dice: random.Random = field(default_factory=lambda: random.Random(0))
    max_draft: int = 16
    max_nodes: int = 64
    granted_rate: float = 20.0
    stop_id: int | None = None
    corrupt: int = 0
    """How many coming commits carry a wrong digest."""
    forget: bool = False
    """Hold nothing of what checkpoints name."""
    refuse: ProtocolError | None = None
    lose_logprobs: bool = False
    """Commits lack the log probability of their last token."""
    encode: Encode | None = None
    """The tokenizer that prompts sent as text are read with."""

    def __post_init__(self) -> None:
        self.tokens: list[int] = []
        self.open: Open | None = None
        self.opens: list[Open] = []
        self.appended: list[list[int]] = []
        self.drafts: list[Draft] = []
        self.largest_unverified = 0
        self.running = False
        self._sent = 0
        self._nodes: dict[int, _Node] = {}
        self._count = 0
        self._frames = 0
        self._totals = Totals()
        self._finish: FinishReason | None = None
        self._said_final = True

    def receive(self, data: bytes) -> list[bytes]:
        """Take a frame of the edge; the frames that answer it at once."""
        message = wire.decode_edge(data)
        match message:
            case Open():
                return [wire.encode_cloud(self._open(message))]
            case Draft():
                self._draft(message)
            case Cancel():
                self._end(FinishReason.CANCELLED)
            case Ping():
                raise AssertionError("a session that is not idle has no reason to ping")
        return []

    def step(self) -> None:
        """One verify step: the right drafts at the tip, and the target's own token behind them."""
        if not self.running:
            return
        before = len(self.tokens)
        accepted = 0
        while accepted < self.max_draft and self._right_at(len(self.tokens)) is not None and self.running:
            self._extend()
            accepted += 1
        if self._goes_on():
            self._extend()
        else:
            accepted -= 1
        self._totals = Totals(
            verify_steps=self._totals.verify_steps + 1,
            plain_steps=self._totals.plain_steps + (len(self.tokens) == before + 1),
            draft_tokens=self._totals.draft_tokens + accepted,
            accepted_tokens=self._totals.accepted_tokens + accepted,
        )

    def commit(self, held_us: int = 0) -> bytes | None:
        """A frame with everything that is new, naming a matched node or not as the dice fall."""
        final = not self.running and not self._said_final
        if self.open is None or not (final or len(self.tokens) > self._sent):
            return None
        named = [i for i, n in self._nodes.items() if n.right and self._sent <= n.position < len(self.tokens)]
        matched = self.dice.choice(named) if named and self.dice.random() < 0.8 else None
        start = self._sent if matched is None else self._nodes[matched].position + 1
        digest = short(PrefixDigest(self.tokens).at(len(self.tokens)))
        if self.corrupt:
            self.corrupt -= 1
            digest ^= 1
        frame = Commit(
            length=len(self.tokens),
            digest=digest,
            tokens=pack_tokens(self.tokens[start:], self.vocab_size),
            matched=matched,
            ack=self._frames,
            held_us=held_us,
            finish=self._finish if final else None,
            totals=self._totals if final else None,
        )
        if self.open.top_logprobs is not None:
            items = [logprob_at(self.tokens, i, self.open.top_logprobs) for i in range(self._sent, len(self.tokens))]
            frame = replace(frame, logprobs=pack_logprobs(items[: -1 if self.lose_logprobs else None]))
        self._sent = len(self.tokens)
        self._said_final = self._said_final or final
        return wire.encode_cloud(frame)

    def _open(self, message: Open) -> Opened:
        if self.refuse is not None:
            raise self.refuse
        assert self.open is None or message.epoch > self.open.epoch
        self.opens.append(message)
        digests = PrefixDigest(self.tokens)
        held = [
            c.length
            for c in message.keep
            if not self.forget and c.length <= len(self.tokens) and digests.at(c.length) == c.digest
        ]
        kept = max(held, default=0)
        self.forget = False
        self._nodes, self._count, self._frames = {}, 0, 0
        resumed = self.running and not message.append and bool(message.keep) and kept == message.keep[-1].length
        if message.keep and kept < message.keep[-1].length:
            self.running, self._said_final = False, True
            self.open = message
            self._sent = len(self.tokens)
        elif resumed or (self.open is not None and not self._said_final and not message.append):
            self._sent = kept
            self.open = message
        else:
            self._start(message, kept)
        return Opened(
            message.epoch, kept, "fake", self.granted_rate, self.max_draft, self.max_nodes, exact=True, resumed=resumed
        )

    def _start(self, message: Open, kept: int) -> None:
        append = unpack_ids(message.append, self.vocab_size, 100_000, encode=self.encode) if message.append else []
        self.appended.append(append)
        self.tokens = self.tokens[:kept] + append
        self.open = message
        self.running, self._said_final, self._finish = True, False, None
        self._sent = len(self.tokens)
        self._totals = Totals()

    def _draft(self, message: Draft) -> None:
        assert message.received <= self._sent
        self._frames += 1
        self.drafts.append(message)
        if not message.nodes:
            return
        base = message.received if message.base is None else message.base
        assert self.open is not None
        for node in unpack(message.nodes, self._count, self.vocab_size, self.max_nodes, self.open.codec):
            parent = None if node.parent == ROOT else self._nodes[node.parent]
            position = base if parent is None else parent.position + 1
            known = position < len(self.truth)
            right = (parent is None or parent.right) and known and self.truth[position] == node.token
            self._nodes[self._count] = _Node(position, right, node.parent)
            self._count += 1
            self.largest_unverified = max(self.largest_unverified, position + 1 - message.received)

    def _goes_on(self) -> bool:
        return self.running

    def _right_at(self, position: int) -> int | None:
        return next((i for i, n in self._nodes.items() if n.right and n.position == position), None)

    def _extend(self) -> None:
        assert self.open is not None
        token = self.truth[len(self.tokens)]
        self.tokens.append(token)
        if token == self.stop_id:
            self._end(FinishReason.STOP_TOKEN)
        elif len(self.tokens) >= self.open.prompt_len + self.open.max_tokens:
            self._end(FinishReason.LENGTH)

    def _end(self, reason: FinishReason) -> None:
        if not self.running:
            return
        self.running, self._finish = False, reason
