"""An edge in virtual time: the real session, a drafter that is right now and then, and a user with a list of wishes.

It checks what it is told while it is told: tokens come in order, once each, and are those of plain decoding.
"""

from __future__ import annotations

import dataclasses
import random
import zlib
from collections.abc import Callable, Sequence

from acespec.edge.brain.controllers import make_controller
from acespec.edge.brain.tree_shape import tree_shape
from acespec.edge.drafters.base import Candidate
from acespec.edge.events import Committed, Event, Finished, TurnOpened
from acespec.edge.session import EdgeSession
from acespec.edge.turn_request import TurnRequest
from acespec.proto import wire
from acespec.proto.errors import AcespecError, ProtocolError, Unavailable
from acespec.proto.messages import Commit, FinishReason
from acespec.sim.agenda import Agenda
from acespec.sim.edge_driver import EdgeDriver
from acespec.sim.schedule import Ask, Setup
from acespec.sim.toy_server import FINGERPRINT, VOCAB, longest
from acespec.sim.toy_target import toy_text, toy_token
from acespec.sim.virtual_stream import BytePipe, VirtualStream

STOP_ID = 0
MOST_NEW = 4
"""Ids that a user adds to a conversation at a time."""
BACKOFF_S = (0.1, 0.5, 1.0, 2.0)
PAUSE_S = 0.1
"""Between a turn's end and the next wish."""
HOP = 4
"""Proposals after which what was drafted is handed in."""


class RuleBroken(AcespecError):
    """A rehearsal went wrong: what was promised did not hold."""


class VirtualEdge(EdgeDriver[VirtualStream]):
    """One user. `connect` asks the world for a stream; it answers with `connected` or `ended`.

    Attributes:
        target: index of the replica that new streams go to.
        finished: asks that came to their end.
    """

    def __init__(
        self,
        agenda: Agenda,
        setup: Setup,
        number: int,
        asks: Sequence[Ask],
        connect: Callable[[VirtualEdge], None],
        newest_prompt: Callable[[], list[int]],
    ) -> None:
        session = EdgeSession(
            fingerprint=FINGERPRINT,
            vocab_size=VOCAB,
            controller=make_controller(setup.controller if setup.ahead < 0 else setup.ahead),
            session_id=number.to_bytes(16, "big"),
            shape=tree_shape(setup.tree),
        )
        super().__init__(agenda, session, setup.draft, HOP)
        self.target = 0
        self.finished = 0
        self.prompt: list[int] = []
        self.began_at = 0.0
        self._setup = setup
        self._asks = list(asks)
        self._connect = connect
        self._newest_prompt = newest_prompt
        self._ask: Ask | None = None
        self._truth: list[int] = []
        self._told: list[int] = []
        self._cancelled = False
        self._connecting = False
        self._attempt = 0
        self._tamper: str | None = None
        self._tampered = False

    @property
    def idle(self) -> bool:
        """True once nothing runs and nothing is wished for any more."""
        return self._ask is None and not self._asks

    @property
    def running(self) -> Ask | None:
        """What was asked for, while it is being answered."""
        return self._ask

    # -- the user ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Ask the next thing, if there is one and nothing runs."""
        if self._ask is not None or not self._asks:
            return
        self._ask = ask = self._asks.pop(0)
        self.prompt, seed, tokens, shared = self._wish(ask)
        # A sequence that fills the verifier's memory ends there.
        room = longest(self._setup) - len(self.prompt)
        self._truth = _until_stop(toy_text(self.prompt, seed, VOCAB, min(tokens, room)))
        self._told = []
        self._cancelled = self._tampered = False
        self.began_at = self._agenda.now
        request = TurnRequest(
            seed=seed, max_tokens=tokens, stop_ids=(STOP_ID,), end_ids=(STOP_ID,), target_rate=self._setup.rate
        )
        self._request = request
        self.session.start_turn(self._agenda.now, self.prompt, request, shared=shared)
        if self.stream is None:
            self._reach()
        self.draft()
        self.write()

    def wish(self, ask: Ask) -> None:
        """Want another thing, after all that is wished for already."""
        self._asks.append(ask)
        self.begin()

    def cancel(self) -> None:
        """Change one's mind."""
        if self._ask is not None:
            self._cancelled = True
            self.session.cancel()
            self.write()

    def leave(self) -> None:
        """Walk away from the answer, and ask the next thing at once."""
        if self._ask is not None:
            self.session.abandon()
            self._end()
            self.begin()

    def tamper(self, how: str) -> None:
        """Spoil the next commit that has tokens; once a turn, since a second time ends it by design."""
        if not self._tampered:
            self._tamper = how

    def _wish(self, ask: Ask) -> tuple[list[int], int, int, int]:
        """(prompt, seed, tokens, how many ids another session has sent)."""
        dice = random.Random(f"{self._setup.salt}:{ask.seed}:{ask.kind}")
        ids, prompt = self.session.ids, self.prompt
        if not prompt and ask.kind != "shared":
            return _random_ids(dice, 3, 12), ask.seed, ask.tokens, 0
        match ask.kind:
            case "next" | "edit" if len(ids) + MOST_NEW >= longest(self._setup):
                pass  # It would not fit: begin anew.
            case "next":
                return [*ids, *_random_ids(dice, 1, MOST_NEW)], ask.seed, ask.tokens, 0
            case "again":
                return prompt, ask.seed, ask.tokens, 0
            case "same":
                return prompt, self._request.seed, self._request.max_tokens, 0
            case "edit":
                return [*ids[: dice.randrange(len(ids))], *_random_ids(dice, 1, MOST_NEW)], ask.seed, ask.tokens, 0
            case "shared" if newest := self._newest_prompt():
                return newest, ask.seed, ask.tokens, len(newest)
        return _random_ids(dice, 3, 12), ask.seed, ask.tokens, 0

    def _end(self) -> None:
        self._ask = None
        self.finished += 1

    # -- the stream ----------------------------------------------------------------------------------------------

    def connected(self, stream: VirtualStream, up: BytePipe, down: BytePipe) -> None:
        """A stream is there."""
        self._connecting = False
        super().connected(stream, up, down)

    def ended(self, stream: VirtualStream | None, error: ProtocolError) -> None:
        """A stream has ended, or (None) could not be had."""
        if stream is not self.stream:
            return
        if not isinstance(error, Unavailable):
            raise RuleBroken(f"the verifier refused an honest edge: {error}")
        self.stream, self._connecting = None, False
        if self._ask is not None:
            wait = BACKOFF_S[min(self._attempt, len(BACKOFF_S) - 1)]
            self._attempt += 1
            self._agenda.at(self._agenda.now + wait, self._recover)

    def _recover(self) -> None:
        if self.stream is None and not self._connecting and self._ask is not None:
            self.session.reconnect(self._agenda.now)
            self._reach()

    def _reach(self) -> None:
        if not self._connecting:
            self._connecting = True
            self._connect(self)

    def _receive(self, stream: VirtualStream, data: bytes) -> None:
        super()._receive(stream, self._spoil(data) if stream is self.stream else data)

    def _spoil(self, data: bytes) -> bytes:
        if self._tamper is None:
            return data
        message = wire.decode_cloud(data)
        if not isinstance(message, Commit) or not message.tokens:
            return data
        how, self._tamper, self._tampered = self._tamper, None, True
        if how == "forge":
            return wire.encode_cloud(dataclasses.replace(message, matched=10**6))
        wrong = bytes([message.tokens[0] ^ 0x80, *message.tokens[1:]])
        return wire.encode_cloud(dataclasses.replace(message, tokens=wrong))

    def _hear(self, event: Event) -> None:
        if self.session.reopened > self._tampered:
            raise RuleBroken("the two ends went apart although nobody tampered with a frame")
        match event:
            case TurnOpened():
                self._attempt = 0
            case Committed():
                self._told_more(event)
            case Finished():
                self._finish(event)

    def _told_more(self, event: Committed) -> None:
        at = event.start - len(self.prompt)
        if at != len(self._told):
            raise RuleBroken(f"tokens from {at} on were told where {len(self._told)} were next: a gap or a duplicate")
        self._told += event.tokens
        if self._told != self._truth[: len(self._told)]:
            raise RuleBroken(f"told {self._told}, but plain decoding gives {self._truth}")

    def _finish(self, event: Finished) -> None:
        if event.reason is FinishReason.CANCELLED:
            if not self._cancelled:
                raise RuleBroken("the turn ended as cancelled, and nobody had cancelled it")
        elif self._told != self._truth:
            raise RuleBroken(f"the turn ended with {self._told}, but plain decoding gives {self._truth}")
        elif (event.reason is FinishReason.STOP_TOKEN) != (self._truth[-1] == STOP_ID):
            raise RuleBroken(f"the turn ended by {event.reason.name} with {self._truth}")
        if self.session.ids != self.prompt + self._told:
            raise RuleBroken("the session's sequence is not what it has told")
        self._end()
        self._agenda.at(self._agenda.now + PAUSE_S, self.begin)

    # -- the drafter ---------------------------------------------------------------------------------------------

    def _propose(self, path: Sequence[int], k: int) -> list[Candidate]:
        """The first guess is right as often as the setup says; of the misses the second catches half, and so on."""
        chance = zlib.crc32(b"%d:%d:%d" % (self._setup.salt, self._request.seed, len(path))) / 2**32
        truth = toy_token(path, self._request.seed, VOCAB)
        miss = 1.0 - self._setup.accuracy
        rank = 0 if chance < self._setup.accuracy else next((r for r in range(1, k) if 1 - chance > miss / 2**r), k)
        tokens = [(truth + 1 + r) % VOCAB for r in range(k)]
        tokens[rank:rank] = [truth]
        chances = [self._setup.accuracy, *(miss / 2**r for r in range(1, k))]
        return [Candidate(token, p, "lm") for token, p in zip(tokens[:k], chances, strict=True)]


def _random_ids(dice: random.Random, least: int, most: int) -> list[int]:
    return [dice.randrange(VOCAB) for _ in range(dice.randint(least, most))]


def _until_stop(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(STOP_ID) + 1] if STOP_ID in tokens else tokens
