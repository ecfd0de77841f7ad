"""Puts what a session does into records for its watcher."""

from __future__ import annotations

from collections.abc import Sequence

from acespec.edge.brain.draft_desk import DraftDesk
from acespec.edge.turn_request import TurnRequest
from acespec.edge.watch import CommitSeen, Sent, Served, SessionWatcher, TurnStarted
from acespec.proto.framing import message_bytes
from acespec.proto.messages import Commit, Draft, EdgeMessage, Open, Opened


class SessionNotes:
    """Of one session; made only if somebody watches."""

    def __init__(self, watcher: SessionWatcher, desk: DraftDesk, tls: bool) -> None:
        self.watcher = watcher
        self._desk = desk
        self._tls = tls
        self._cache = desk.tree.cache
        self._next_node = 0
        self._frames = 0
        self._epoch = 0

    def started(self, length: int, prompt_len: int, request: TurnRequest) -> None:
        """A turn was asked for."""
        params = request.params
        self.watcher.saw(
            TurnStarted(length, prompt_len, request.max_tokens, request.seed, params.temperature, request.target_rate)
        )

    def sent(self, message: EdgeMessage, nbytes: int, keys: Sequence[int], why: str) -> None:
        """`message` goes up with the nodes `keys` of the draft tree; `why` is empty if it was owed."""
        ip_bytes = message_bytes(nbytes, self._tls)
        if isinstance(message, Open):
            self._epoch, self._next_node, self._frames = message.epoch, 0, 0
        if not isinstance(message, Draft):
            self.watcher.saw(Sent(type(message).__name__.lower(), nbytes, ip_bytes, self._epoch))
            return
        self._frames += 1
        sent = Sent(
            "draft" if keys else "step" if message.step else "ack",
            nbytes,
            ip_bytes,
            self._epoch,
            frame=self._frames,
            received=message.received,
            first_node=self._next_node,
            keys=tuple(keys),
            step=message.step,
            why=why or ("request" if message.step else "ack"),
            held_ms=message.held_ms,
        )
        self._next_node += len(keys)
        self.watcher.saw(sent)

    def served(self, terms: Opened, nbytes: int) -> None:
        """The verifier serves the turn."""
        self.watcher.saw(
            Served(
                epoch=terms.epoch,
                bytes=nbytes,
                ip_bytes=message_bytes(nbytes, self._tls),
                kept=terms.kept,
                granted_rate=terms.granted_rate,
                max_draft=terms.max_draft,
                max_nodes=terms.max_nodes,
                numerics_id=terms.numerics_id,
                exact=terms.exact,
                resumed=terms.resumed,
            )
        )

    def commit(
        self, commit: Commit, nbytes: int, tokens: Sequence[int], named: int, guessed: int, rtt: float | None
    ) -> None:
        """`commit` made `tokens` final; see `CommitSeen`."""
        before, self._cache = self._cache, self._desk.tree.cache
        cache = self._cache
        self.watcher.saw(
            CommitSeen(
                bytes=nbytes,
                ip_bytes=message_bytes(nbytes, self._tls),
                length=commit.length,
                tokens=tuple(tokens),
                named=named,
                guessed=guessed,
                plain=bool(tokens) and commit.matched is None,
                ack=commit.ack,
                held_ms=commit.held_us / 1000,
                rtt_ms=None if rtt is None else rtt * 1000,
                verify_ms=commit.verify_us / 1000,
                load=commit.load,
                next_in_ms=commit.next_in_ms,
                prices=self._desk.prices,
                surprises=cache.surprises - before.surprises,
                covered=cache.covered - before.covered,
                shipped=cache.shipped - before.shipped,
                saved=cache.saved - before.saved,
                finish="" if commit.finish is None else commit.finish.name.lower(),
                totals=commit.totals,
            )
        )
