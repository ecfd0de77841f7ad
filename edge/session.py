"""The edge's end of one session, as a sans-IO state machine: frames in and out as bytes, the time always an argument.

It owns what the protocol is about: the committed sequence and its digests, epochs and checkpoints, the draft tree and
its wire ids, acknowledgements, pacing. It knows neither gRPC nor drafters nor text. One object serves many turns;
`client.py` drives it over the network and a simulation drives the same object in virtual time.
"""

from __future__ import annotations

import enum
import math
import secrets
from collections import deque
from collections.abc import Callable, Sequence

from acespec.edge.brain.controller import Controller
from acespec.edge.brain.draft_desk import DraftDesk
from acespec.edge.brain.drafting_side import DraftingSide
from acespec.edge.brain.headway import Headway
from acespec.edge.brain.market import Market
from acespec.edge.brain.shipping import Shipping
from acespec.edge.brain.tree_shape import CHAIN, TreeShape
from acespec.edge.cadence import Cadence
from acespec.edge.commit_logprobs import logprobs_of
from acespec.edge.commit_tokens import tokens_of
from acespec.edge.events import Committed, Event, Finished, Reopened, TurnOpened
from acespec.edge.link_budget import LinkBudget, Uplink
from acespec.edge.session_notes import SessionNotes
from acespec.edge.turn_opening import TurnOpening
from acespec.edge.turn_request import TurnRequest
from acespec.edge.turn_tally import TurnTally
from acespec.edge.watch import Abandoned, ReopenedBecause, SessionWatcher
from acespec.edge.wire_stats import WireStats, WireTotals
from acespec.proto import wire
from acespec.proto.errors import BadFrame, Desync
from acespec.proto.framing import message_bytes
from acespec.proto.messages import (
    SESSION_ID_BYTES,
    Cancel,
    Checkpoint,
    Commit,
    Draft,
    EdgeMessage,
    Open,
    Opened,
    Totals,
)
from acespec.proto.prompt import Encode

RTT_SAMPLES = 4096
SILENCE_S = 3.0
SILENCE_ROUNDS = 6.0
"""A verifier that owes an answer for so long, and so many round trips, is not heard."""


class Phase(enum.Enum):
    """Where a turn stands."""

    IDLE = "idle"
    """No turn, or it is over: commits are ignored."""
    OPENING = "opening"
    """An `Open` waits for its `Opened`: everything else is of an older epoch."""
    OPEN = "open"


class EdgeSession(DraftingSide):
    """One session; `now` is in seconds of any monotonic clock.

    Attributes:
        terms: the server's answer to the newest `Open`; None before the first.
        rtts: round trips of late in seconds, without the time that the cloud held the frame.
        reopened: how often this turn had to be opened again because the ends disagreed.
        tally: what the commits of this turn brought.
        on_room: called when the link takes messages again that it had refused; it had better lead to a `poll`.
    """

    def __init__(
        self,
        *,
        fingerprint: bytes,
        vocab_size: int,
        controller: Controller,
        model: str = "",
        encode: Encode | None = None,
        session_id: bytes | None = None,
        tls: bool = False,
        shape: TreeShape = CHAIN,
        budget: LinkBudget | None = None,
    ) -> None:
        """`budget`: of the link, where other sessions use it too."""
        super().__init__(DraftDesk(controller, vocab_size, shape))
        self.session_id = session_id or secrets.token_bytes(SESSION_ID_BYTES)
        self.terms: Opened | None = None
        self.rtts: deque[float] = deque(maxlen=RTT_SAMPLES)
        self.reopened = 0
        self._vocab_size = vocab_size
        self._tls = tls
        self._opening = TurnOpening(
            self._sequence,
            session_id=self.session_id,
            fingerprint=fingerprint,
            vocab_size=vocab_size,
            model=model,
            encode=encode,
        )
        self._shipping = Shipping(self._desk, vocab_size, tls=tls)
        self.tally = TurnTally()
        self.on_room: Callable[[], None] = lambda: None
        self._uplink = Uplink(budget or LinkBudget(), lambda: self.on_room())
        self._stats = WireStats(tls)
        self._phase = Phase.IDLE
        self._outbox: deque[EdgeMessage] = deque()
        self._cadence = Cadence(0.0)
        self._headway = Headway()
        self._market = Market()
        self._heard_at = 0.0
        self._cancelling = False
        self._notes: SessionNotes | None = None
        self._why = ""

    def watch(self, watcher: SessionWatcher) -> None:
        """Let `watcher` see everything from now on. Call it before the first turn, once."""
        self._notes = SessionNotes(watcher, self._desk, self._tls)
        self._desk.watch(watcher)

    # -- turns ---------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """True from `start_turn` to the end of the turn."""
        return self._phase is not Phase.IDLE

    @property
    def prompt_len(self) -> int:
        """Where the generated part of the turn begins."""
        return self._opening.prompt_len

    @property
    def link_rate(self) -> float | None:
        """Estimated rate of the uplink in bytes/s; None if nothing was acknowledged of late."""
        return self._uplink.pacer.rate

    @property
    def newest_rtt(self) -> float | None:
        """The newest round trip in seconds, of whichever session on the link; None before the first."""
        return self._uplink.pacer.last_rtt

    def silent_since(self, now: float) -> float | None:
        """Since when the server of an open turn owes an answer, if that is too long for a link that is up."""
        asked = self._uplink.unanswered_since
        if self._phase is not Phase.OPEN or asked is None:
            return None
        since = max(asked, self._heard_at)
        patience = max(SILENCE_S, SILENCE_ROUNDS * (self._uplink.pacer.base_rtt or 0.0))
        return since if now - since > patience else None

    @property
    def outbox(self) -> int:
        """Frames that wait besides the next draft: an `Open` and a `Cancel` at most."""
        return len(self._outbox)

    def start_turn(
        self,
        now: float,
        ids: Sequence[int],
        request: TurnRequest,
        *,
        prompt_len: int | None = None,
        text: str | None = None,
        shared: int = 0,
    ) -> Open:
        """Begin a turn over `ids`; only what the server may lack goes up. The `Open` is also the next frame of `poll`.

        Args:
            ids: the whole sequence so far.
            prompt_len: where the generated part begins; default: behind `ids`.
            text: what `ids` were encoded from; the smaller of the two goes up if all of `ids` must.
            shared: leading ids that another session has sent to the same server already: they are named, not sent.
        """
        held = self._opening.start(ids, request, prompt_len, text, shared)
        self._cancelling = False
        self.tally = TurnTally()
        self._desk.start(len(ids), self.prompt_len + request.max_tokens, request.end_ids)
        self.reopened = 0
        if self._notes is not None:
            self._notes.started(len(ids), self.prompt_len, request)
        return self._open(now, held)

    def reconnect(self, now: float) -> Open:
        """A new stream is about to carry the turn: resume it there. What is under way on the old one is lost."""
        return self._open(now, self._opening.held())

    def cancel(self) -> None:
        """Ask the cloud to end the turn; it answers with a final commit."""
        if self.running and not self._cancelling:
            self._cancelling = True
            self._outbox.append(Cancel())

    def abandon(self) -> None:
        """The turn is over here, whatever the cloud thinks; what it still sends is ignored."""
        if self._notes is not None and self.running:
            self._notes.watcher.saw(Abandoned())
        self._outbox.clear()
        self._end()

    def _end(self) -> None:
        self._phase = Phase.IDLE
        self._desk.clear()
        self._uplink.restart()

    def _open(self, now: float, held: tuple[Checkpoint, ...]) -> Open:
        self._phase = Phase.OPENING
        self._cadence = Cadence(now)
        self._headway = Headway()
        self._uplink.restart()
        self._shipping.restart()
        message = self._opening.message(held)
        self._outbox.clear()
        self._outbox.append(message)
        if self._cancelling:
            self._outbox.append(Cancel())
        return message

    # -- frames down ---------------------------------------------------------------------------------------------

    def receive(self, now: float, data: bytes) -> list[Event]:
        """Take a frame; what came of it.

        Raises:
            BadFrame: the bytes are no frame of this protocol, or contradict it or the request.
            Desync: the ends disagree on the committed tokens for the second time in this turn.
        """
        self._heard_at = now
        self._stats.received(now, len(data), self._uplink.pacer.base_rtt or 0.0)
        message = wire.decode_cloud(data)
        if isinstance(message, Opened) and self._phase is Phase.OPENING and message.epoch == self._opening.epoch:
            return self._opened(now, message, len(data))
        if isinstance(message, Commit) and self._phase is Phase.OPEN:
            return self._commit(now, message, len(data))
        return []

    def _opened(self, now: float, answer: Opened, nbytes: int) -> list[Event]:
        if self._notes is not None:
            self._notes.served(answer, nbytes)
        asked = self._opening.asked
        if (known := self._opening.answered(answer)) is not None:
            return self._open_anew(now, known, f"the server holds {answer.kept} of {asked} tokens")
        self.terms = answer
        self._desk.limit(answer.max_draft, answer.max_nodes)
        self._phase = Phase.OPEN
        self._cadence = Cadence(now)
        return [TurnOpened(answer)]

    def _commit(self, now: float, commit: Commit, nbytes: int) -> list[Event]:
        rtt = self._take_ack(now, commit)
        start = len(self._sequence)
        try:
            limit = self.prompt_len + self._opening.request.max_tokens
            tokens, named = tokens_of(commit, self._desk.tree, limit, self._vocab_size)
        except (BadFrame, KeyError) as fault:
            return self._disagree(now, start, f"a commit to length {commit.length} cannot be read: {fault}")
        self._sequence.extend(tokens)
        if self._sequence.check() != commit.digest:
            self._sequence.truncate(start)
            return self._disagree(now, start, f"the digest at length {commit.length} differs")
        logprobs = logprobs_of(commit, len(tokens), self._opening.request.top_logprobs, self._vocab_size)
        self._cadence.heard(now, len(tokens), commit.next_in_ms / 1000)
        self._headway.heard(now, len(tokens), commit.next_in_ms / 1000)
        self._shipping.heard(now, commit.next_in_ms / 1000)
        self._market.heard(commit)
        self.tally.add(len(tokens), named)
        guessed = self._desk.committed(now, self._sequence.ids, len(tokens))
        if self._notes is not None:
            self._notes.commit(commit, nbytes, tokens, named, guessed, rtt)
        events: list[Event] = [Committed(start, tuple(tokens), logprobs)] if tokens else []
        if commit.finish is not None:
            self._end()
            events.append(Finished(commit.finish, commit.text_end, commit.totals or Totals()))
        return events

    def _take_ack(self, now: float, commit: Commit) -> float | None:
        """The round trip, if the commit acknowledges something new."""
        rtt = self._uplink.acknowledged(now, commit.ack, commit.held_us / 1e6)
        if rtt is not None:
            self.rtts.append(rtt)
            self._market.measured(self._uplink.pacer)
        return rtt

    def _disagree(self, now: float, trusted: int, reason: str) -> list[Event]:
        self.reopened += 1
        if self.reopened > 1:
            raise Desync(f"the two ends disagree about the text again after a resync at length {trusted}: {reason}")
        return self._open_anew(now, self._opening.committed(), reason)

    def _open_anew(self, now: float, held: tuple[Checkpoint, ...], reason: str) -> list[Event]:
        if self._notes is not None:
            self._notes.watcher.saw(ReopenedBecause(reason))
        self._open(now, held)
        return [Reopened(reason)]

    # -- frames up -----------------------------------------------------------------------------------------------

    def poll(self, now: float) -> bytes | None:
        """The next frame to write now, if any. Call until it returns None."""
        message = self._next(now)
        if message is None:
            return None
        data = wire.encode_edge(message)
        self._stats.sent(now, len(data))
        if isinstance(message, Draft):
            self._uplink.sent(now, message_bytes(len(data), self._tls))
            self._cadence.wrote(now, message.step)
        if self._notes is not None:
            self._notes.sent(message, len(data), self._shipping.loaded, self._why)
        return data

    def wake_at(self) -> float | None:
        """When `poll` could have something by the passing of time alone."""
        if self._phase is not Phase.OPEN:
            return None
        return min(self._due_at(), self._shipping.held_until() or math.inf)

    def wire_totals(self, now: float) -> WireTotals:
        """Bytes of the session so far."""
        return self._stats.totals(now)

    @property
    def wire_so_far(self) -> WireTotals:
        """The same without settling what is not acknowledged yet: it changes nothing."""
        return self._stats.so_far

    def _next(self, now: float) -> EdgeMessage | None:
        if self._outbox:
            return self._outbox.popleft()
        if self._phase is not Phase.OPEN:
            return None
        self._desk.prices = self._market.prices(now, self._uplink.pacer, self._headway)
        waited = self._notes is not None and self._shipping.held_until() is not None
        if self._shipping.due(now, room=self._uplink.ready()):
            self._why = "due" if waited else "worth"
            return self._draft(now)
        if now >= self._due_at():
            self._why = ""
            return self._draft(now)
        return None

    def _draft(self, now: float) -> Draft:
        terms = self.terms
        if terms is None:
            raise RuntimeError("no terms before the first Opened")
        step = now >= self._cadence.request_at(self._uplink.pacer.base_rtt, self._dry) or (
            self._dry and terms.granted_rate == 0
        )
        nodes = self._shipping.load(terms.max_nodes)
        return Draft(received=len(self._sequence), nodes=nodes, step=step, held_ms=self._cadence.held_ms(now))

    def _due_at(self) -> float:
        rtt = self._uplink.pacer.base_rtt
        ack_at = self._cadence.ack_at(rtt, drafting=self.wants_draft())
        ack_at = math.inf if ack_at is None else max(ack_at, self._shipping.held_until() or ack_at)
        return min(ack_at, self._cadence.request_at(rtt, self._dry))

    @property
    def _dry(self) -> bool:
        """Nothing of ours is there to verify, and nothing is coming."""
        return not (self._desk.tree.shipped or self._shipping.waiting() or self.wants_draft())
