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
from collections.abc import Sequence

from acespec.edge.cadence import Cadence
from acespec.edge.commit_logprobs import logprobs_of
from acespec.edge.controller import Controller
from acespec.edge.draft_desk import DraftDesk, DraftJob, Level
from acespec.edge.draft_tree import BranchCache
from acespec.edge.events import Committed, Event, Finished, Reopened, TurnOpened
from acespec.edge.headway import Headway
from acespec.edge.market import Market
from acespec.edge.sequence import CommittedSequence
from acespec.edge.shipping import Shipping
from acespec.edge.tree_shape import CHAIN, TreeShape
from acespec.edge.turn_request import TurnRequest
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
from acespec.proto.pacer import Pacer
from acespec.proto.prompt import Encode, pack_ids
from acespec.proto.tokens import unpack_tokens

RTT_SAMPLES = 4096
DRAFTS_GAIN = 1.25
"""Bandwidth-delay products of drafts in flight. Commits, which acknowledge them, come often; and what queues up here
delays our own acknowledgements, and with them the commits."""


class Phase(enum.Enum):
    """Where a turn stands."""

    IDLE = "idle"
    """No turn, or it is over: commits are ignored."""
    OPENING = "opening"
    """An `Open` waits for its `Opened`: everything else is of an older epoch."""
    OPEN = "open"


class EdgeSession:
    """One session; `now` is in seconds of any monotonic clock.

    Attributes:
        terms: the server's answer to the newest `Open`; None before the first.
        rtts: round trips of late in seconds, without the time that the cloud held the frame.
        reopened: how often this turn had to be opened again because the ends disagreed.
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
    ) -> None:
        self.session_id = session_id or secrets.token_bytes(SESSION_ID_BYTES)
        self.terms: Opened | None = None
        self.rtts: deque[float] = deque(maxlen=RTT_SAMPLES)
        self.reopened = 0
        self._fingerprint = fingerprint
        self._vocab_size = vocab_size
        self._model = model
        self._encode = encode
        self._tls = tls
        self._sequence = CommittedSequence()
        self._request = TurnRequest()
        self._prompt_len = 0
        self._prompt_text: str | None = None
        self._desk = DraftDesk(controller, vocab_size, shape)
        self._shipping = Shipping(self._desk, vocab_size, tls=tls)
        self._pacer = Pacer(DRAFTS_GAIN)
        self._stats = WireStats(tls)
        self._phase = Phase.IDLE
        self._epoch = 0
        self._asked: tuple[Checkpoint, ...] = ()
        self._acknowledged_turn = False
        self._outbox: deque[EdgeMessage] = deque()
        self._cadence = Cadence(0.0)
        self._headway = Headway()
        self._market = Market()
        self._frames = self._frames_acked = 0
        self._cancelling = False

    # -- turns ---------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """True from `start_turn` to the end of the turn."""
        return self._phase is not Phase.IDLE

    @property
    def ids(self) -> list[int]:
        """A copy of the committed sequence, prompt included."""
        return list(self._sequence.ids)

    @property
    def prompt_len(self) -> int:
        """Where the generated part of the turn begins."""
        return self._prompt_len

    @property
    def link_rate(self) -> float | None:
        """Estimated rate of the uplink in bytes/s; None if nothing was acknowledged of late."""
        return self._pacer.rate

    @property
    def unverified(self) -> int:
        """Drafted tokens of one path that nothing is known of yet."""
        return self._desk.tree.deepest()

    @property
    def nodes(self) -> int:
        """All guesses that are held."""
        return len(self._desk.tree)

    @property
    def branch_cache(self) -> BranchCache:
        """What became of first guesses that were wrong."""
        return self._desk.tree.cache

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
        common = self._sequence.replace(ids)
        held = [n for n in (self._prompt_len, common) if n <= common]
        self._asked = self._sequence.checkpoints([*held, min(shared, len(ids))])
        self._prompt_len = len(ids) if prompt_len is None else prompt_len
        self._prompt_text = text
        self._request = request
        self._cancelling = False
        self._desk.start(len(ids), self._prompt_len + request.max_tokens, request.end_ids)
        self.reopened = 0
        self._acknowledged_turn = False
        return self._open(now, self._asked)

    def reconnect(self, now: float) -> Open:
        """A new stream is about to carry the turn: resume it there. What is under way on the old one is lost."""
        held = self._checkpoints_of_turn() if self._acknowledged_turn else self._asked
        return self._open(now, held)

    def cancel(self) -> None:
        """Ask the cloud to end the turn; it answers with a final commit."""
        if self.running and not self._cancelling:
            self._cancelling = True
            self._outbox.append(Cancel())

    def abandon(self) -> None:
        """The turn is over here, whatever the cloud thinks; what it still sends is ignored."""
        self._phase = Phase.IDLE
        self._outbox.clear()
        self._desk.clear()

    def _open(self, now: float, held: tuple[Checkpoint, ...]) -> Open:
        start = held[-1].length if held else 0
        ids = self._sequence.ids
        text = self._prompt_text if start == 0 and len(ids) == self._prompt_len else None
        request = self._request
        self._epoch += 1
        self._asked = held
        self._phase = Phase.OPENING
        self._cadence = Cadence(now)
        self._headway = Headway()
        self._pacer.reset()
        self._shipping.restart()
        self._frames = self._frames_acked = 0
        message = request.open(
            session_id=self.session_id,
            epoch=self._epoch,
            fingerprint=self._fingerprint,
            prompt_len=self._prompt_len,
            append=pack_ids(ids[start:], self._vocab_size, text=text, encode=self._encode),
            keep=held,
            model=self._model,
        )
        self._outbox.clear()
        self._outbox.append(message)
        if self._cancelling:
            self._outbox.append(Cancel())
        return message

    def _checkpoints_of_turn(self) -> tuple[Checkpoint, ...]:
        return self._sequence.checkpoints((self._prompt_len, len(self._sequence)))

    # -- frames down ---------------------------------------------------------------------------------------------

    def receive(self, now: float, data: bytes) -> list[Event]:
        """Take a frame; what came of it.

        Raises:
            BadFrame: the bytes are no frame of this protocol, or contradict it or the request.
            Desync: the ends disagree on the committed tokens for the second time in this turn.
        """
        self._stats.received(now, len(data))
        message = wire.decode_cloud(data)
        if isinstance(message, Opened) and self._phase is Phase.OPENING and message.epoch == self._epoch:
            return self._opened(now, message)
        if isinstance(message, Commit) and self._phase is Phase.OPEN:
            return self._commit(now, message)
        return []

    def _opened(self, now: float, answer: Opened) -> list[Event]:
        asked = self._asked[-1].length if self._asked else 0
        if answer.kept != asked:
            known = tuple(c for c in self._asked if c.length <= answer.kept)
            if (known[-1].length if known else 0) != answer.kept or answer.kept > asked:
                raise BadFrame(f"the server says it kept {answer.kept} tokens, a length that it was not asked about")
            self._open(now, known)
            return [Reopened(f"the server holds {answer.kept} of {asked} tokens")]
        self.terms = answer
        self._desk.limit(answer.max_draft, answer.max_nodes)
        self._phase = Phase.OPEN
        self._acknowledged_turn = True
        self._cadence = Cadence(now)
        return [TurnOpened(answer)]

    def _commit(self, now: float, commit: Commit) -> list[Event]:
        self._take_ack(now, commit)
        start = len(self._sequence)
        try:
            tokens = self._tokens_of(commit)
        except (BadFrame, KeyError) as fault:
            return self._disagree(now, start, f"a commit to length {commit.length} cannot be read: {fault}")
        self._sequence.extend(tokens)
        if self._sequence.check() != commit.digest:
            self._sequence.truncate(start)
            return self._disagree(now, start, f"the digest at length {commit.length} differs")
        logprobs = logprobs_of(commit, len(tokens), self._request.top_logprobs, self._vocab_size)
        self._cadence.heard(now, len(tokens), commit.next_in_ms / 1000)
        self._headway.heard(now, len(tokens), commit.next_in_ms / 1000)
        self._shipping.heard(now, commit.next_in_ms / 1000)
        self._market.heard(commit)
        self._desk.committed(now, self._sequence.ids, len(tokens))
        events: list[Event] = [Committed(start, tuple(tokens), logprobs)] if tokens else []
        if commit.finish is not None:
            self._phase = Phase.IDLE
            self._desk.clear()
            events.append(Finished(commit.finish, commit.text_end, commit.totals or Totals()))
        return events

    def _take_ack(self, now: float, commit: Commit) -> None:
        acked = min(commit.ack, self._frames)
        if acked > self._frames_acked:
            self._frames_acked = acked
            self._pacer.acknowledged(now, acked, commit.held_us / 1e6)
            if self._pacer.last_rtt is not None:
                self.rtts.append(self._pacer.last_rtt)
                self._market.measured(self._pacer)

    def _tokens_of(self, commit: Commit) -> list[int]:
        matched = [] if commit.matched is None else self._desk.tree.tokens_to(commit.matched)
        explicit = commit.length - len(self._sequence) - len(matched)
        if explicit < 0:
            raise BadFrame(f"its tokens reach beyond it by {-explicit}")
        if commit.length > self._prompt_len + self._request.max_tokens:
            raise BadFrame(f"it is beyond the {self._request.max_tokens} tokens that were asked for")
        return matched + unpack_tokens(commit.tokens, explicit, self._vocab_size)

    def _disagree(self, now: float, trusted: int, reason: str) -> list[Event]:
        self.reopened += 1
        if self.reopened > 1:
            raise Desync(f"the two ends disagree about the text again after a resync at length {trusted}: {reason}")
        self._open(now, self._checkpoints_of_turn())
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
            self._frames += 1
            self._pacer.sent(now, self._frames, message_bytes(len(data), self._tls))
            self._cadence.wrote(now, message.step)
        return data

    def wake_at(self) -> float | None:
        """When `poll` could have something by the passing of time alone."""
        if self._phase is not Phase.OPEN:
            return None
        return min(self._due_at(), self._shipping.held_until() or math.inf)

    def wire_totals(self, now: float) -> WireTotals:
        """Bytes of the session so far."""
        return self._stats.totals(now)

    def _next(self, now: float) -> EdgeMessage | None:
        if self._outbox:
            return self._outbox.popleft()
        if self._phase is not Phase.OPEN:
            return None
        self._desk.prices = self._market.prices(now, self._pacer, self._headway)
        if (self._shipping.due(now) and self._pacer.ready()) or now >= self._due_at():
            return self._draft(now)
        return None

    def _draft(self, now: float) -> Draft:
        terms = self._known_terms()
        step = now >= self._cadence.request_at(self._pacer.base_rtt, self._dry) or (
            self._dry and terms.granted_rate == 0
        )
        nodes = self._shipping.load(terms.max_nodes)
        return Draft(received=len(self._sequence), nodes=nodes, step=step, held_ms=self._cadence.held_ms(now))

    def _due_at(self) -> float:
        rtt = self._pacer.base_rtt
        ack_at = self._cadence.ack_at(rtt, drafting=self.wants_draft())
        ack_at = math.inf if ack_at is None else max(ack_at, self._shipping.held_until() or ack_at)
        return min(ack_at, self._cadence.request_at(rtt, self._dry))

    @property
    def _dry(self) -> bool:
        """Nothing of ours is there to verify, and nothing is coming."""
        return not (self._desk.tree.has_shipped() or self._shipping.waiting() or self.wants_draft())

    def _known_terms(self) -> Opened:
        if self.terms is None:
            raise RuntimeError("no terms before the first Opened")
        return self.terms

    # -- drafting ------------------------------------------------------------------------------------------------

    def path(self) -> list[int]:
        """The committed ids and the path of first guesses behind them."""
        return self._sequence.ids + [self._desk.tree.node(key).token for key in self._desk.tree.main()]

    def wants_draft(self) -> bool:
        """True if there is work for a drafter."""
        return self._desk.wants()

    def draft_job(self) -> DraftJob | None:
        """Work for a drafter, if there is any. It may begin before the server has answered."""
        return self._desk.job(self._sequence.ids)

    def is_void(self, job: DraftJob) -> bool:
        """True if the path of a job has been contradicted: its answer will be dropped."""
        return self._desk.is_void(job)

    def drafted(self, job: DraftJob, levels: Sequence[Level], *, seconds: float, silent: bool) -> None:
        """A drafter's answer to `job`: for each position behind its path the guesses, best first, all behind the first
        guesses before.

        Guesses whose positions were committed meanwhile are compared and skipped; a wrong one drops the rest.

        Args:
            seconds: how long the drafting took.
            silent: the drafter has nothing to say behind these; it is not asked again before something is committed.
        """
        self._desk.take(self._sequence.ids, job, levels, seconds, silent)
