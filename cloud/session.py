"""One session on the wire, as a sans-IO state machine: frames and commits in, frames and backend calls out.

It owns what the protocol is about: epochs, checkpoints, what has been sent and acknowledged, pacing. It knows neither
gRPC nor the model. The same object is driven by `service.py` and by simulations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from acespec.cloud.admission import Admission
from acespec.cloud.backend import Committed, Offer, SessionKey, TurnSpec
from acespec.proto import digest
from acespec.proto.errors import BadFrame, Superseded
from acespec.proto.framing import message_bytes
from acespec.proto.logprobs import TokenLogprobs
from acespec.proto.logprobs import pack as pack_logprobs
from acespec.proto.messages import (
    Cancel,
    Checkpoint,
    CloudMessage,
    Commit,
    Draft,
    EdgeMessage,
    FinishReason,
    Open,
    Opened,
    Ping,
    Pong,
)
from acespec.proto.pacer import Pacer
from acespec.proto.tokens import pack_tokens

ACK_AFTER_S = 0.25
"""Drafts that no commit acknowledges are acknowledged by an empty one after this long."""
COMMITS_GAIN = 1.5
"""Bandwidth-delay products of commits in flight: at 2, a fast target keeps a queue of one round trip on the link."""
TOLERANCE = 0.25
"""Verify time and load are told again when they have changed by more than this share."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The backend should open this turn."""

    spec: TurnSpec


@dataclass(frozen=True, slots=True)
class Resume:
    """The running turn goes on with a new stream."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """The backend should close the running turn; nobody waits for its end."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The backend should close the running turn; the edge waits for its final commit."""


Action = Begin | Resume | Abandon | Stop | Offer


class Session:
    """The cloud's end of one session. `now` is in seconds of any monotonic clock.

    Args:
        size_of: protobuf bytes of a message, for pacing.
        elsewhere: the prefix that a checkpoint names, if another session of the same principal holds it.

    Attributes:
        epoch: of the newest `Open`; frames of older streams are refused.
        tokens: the sequence as far as it is final.
    """

    def __init__(
        self,
        key: SessionKey,
        admission: Admission,
        size_of: Callable[[CloudMessage], int],
        elsewhere: Callable[[Checkpoint], Sequence[int] | None] = lambda _: None,
    ) -> None:
        self.key = key
        self.epoch = -1
        self.tokens: list[int] = []
        self._admission = admission
        self._size_of = size_of
        self._elsewhere = elsewhere
        self._digests = digest.PrefixDigest()
        self._pacer = Pacer(COMMITS_GAIN)
        self._out: list[CloudMessage] = []
        self._opened: Open | None = None
        self._running = False
        self._sent = 0
        self._received = 0
        self._frames = 0
        self._frames_acked = 0
        self._frame_at = 0.0
        self._node_count = 0
        self._matched: tuple[int, int] | None = None
        self._last: Committed | None = None
        self._final: Committed | None = None
        self._told = (0, 0)
        self._unheard_since: float | None = None
        self._logprobs: list[TokenLogprobs] = []  # of the last tokens, those that were drawn here

    @property
    def running(self) -> bool:
        """True between the start of a turn and its last token."""
        return self._running

    @property
    def unfinished(self) -> bool:
        """True until the last commit of a turn has been written."""
        return self._running or self._final is not None

    @property
    def outbox(self) -> int:
        """Frames that wait besides the next commit: an `Opened` and a `Pong` at most."""
        return len(self._out)

    def unheard_for(self, now: float) -> float:
        """Seconds for which a running turn has had commits out without any acknowledgement."""
        return now - self._unheard_since if self._running and self._unheard_since is not None else 0.0

    def holds(self, checkpoint: Checkpoint) -> bool:
        """True if the final tokens begin with the prefix that `checkpoint` names."""
        return checkpoint.length <= len(self.tokens) and self._digests.at(checkpoint.length) == checkpoint.digest

    def receive(self, now: float, message: EdgeMessage) -> list[Action]:
        """Take a frame of the newest stream; what the backend should do about it.

        Raises:
            ProtocolError: the frame is refused; the stream should end with the error's status.
        """
        match message:
            case Open():
                return self._open(message)
            case Draft():
                return self._draft(now, message)
            case Cancel():
                return [Stop()] if self._running else []
            case Ping():
                if Pong() not in self._out:  # One answers all pings so far, so that a flood of them costs nothing.
                    self._out.append(Pong())
                return []

    def committed(self, item: Committed) -> None:
        """The backend made tokens final."""
        self._extend(item.tokens)
        self._logprobs += item.logprobs
        if item.matched is not None and item.epoch == self.epoch:
            self._matched = item.matched
        self._last = item
        if item.finish is not None:
            self._final = item
            self._running = False

    def poll(self, now: float) -> CloudMessage | None:
        """The next frame to write now, if any. Call until it returns None."""
        if self._out:
            return self._out.pop(0)
        if not self._has_news(now) or not (self._pacer.ready() or self._final):
            return None
        commit = self._commit(now)
        if commit.length > self._sent:  # Others are never acknowledged: they would look like a round trip of nothing.
            self._pacer.sent(now, commit.length, message_bytes(self._size_of(commit)))
            self._unheard_since = now if self._unheard_since is None else self._unheard_since
        self._sent = commit.length
        self._frames_acked = self._frames
        if self._final is not None:
            self._final = None
        return commit

    def wake_at(self) -> float | None:
        """When `poll` could have something by the passing of time alone."""
        return self._frame_at + ACK_AFTER_S if self._frames > self._frames_acked else None

    def broken(self) -> None:
        """The backend gave the turn up. What is final stays; an equal `Open` starts the turn anew."""
        self._abandon()

    def disconnected(self) -> None:
        """The stream is gone: what was written may be lost, and is sent again on the next one."""
        self._out.clear()

    def _open(self, message: Open) -> list[Action]:
        if message.epoch <= self.epoch:
            raise Superseded(
                f"epoch {message.epoch} of this session is not above {self.epoch}: a newer stream has taken it over"
            )
        self._admission.check(message)
        kept, prefix = self._kept(message)
        if message.keep and kept < message.keep[-1].length:
            self._renew(message)
            self._out.append(self._answer(message, kept))
            return self._abandon()
        if prefix is None and self._continues(message, kept):
            return self._resume(message, kept)
        spec = self._admission.turn(self.key, message, self.tokens[:kept] if prefix is None else prefix)
        self._renew(message)
        return self._start(message, spec, kept if prefix is None else 0, kept)

    def _kept(self, message: Open) -> tuple[int, Sequence[int] | None]:
        """The longest checkpoint that is held, and its tokens if it is another session that holds them."""
        for checkpoint in sorted(message.keep, key=lambda c: -c.length):
            if self.holds(checkpoint):
                return checkpoint.length, None
            if (prefix := self._elsewhere(checkpoint)) is not None:
                return checkpoint.length, prefix
        return 0, None

    def _renew(self, message: Open) -> None:
        """A new epoch: nothing that was under way counts any more."""
        self.epoch = message.epoch
        self._out.clear()
        self._pacer.reset()
        self._frames = self._frames_acked = self._node_count = 0
        self._matched = None
        self._told = (0, 0)
        self._unheard_since = None

    def _resume(self, message: Open, kept: int) -> list[Action]:
        acknowledged = Offer(self.epoch, self._node_count, (), kept, kept)
        self._renew(message)
        self._sent = self._received = kept
        self._opened = message
        self._out.append(self._answer(message, kept, resumed=True))
        if self._running:
            return [Resume(), acknowledged]
        self._final = self._last
        return [Resume()]

    def _start(self, message: Open, spec: TurnSpec, own: int, kept: int) -> list[Action]:
        """Begin `spec`; the first `own` of its tokens are held already."""
        actions = self._abandon()
        self._truncate(own)
        self._extend(spec.tokens[own:])
        self._sent = self._received = len(self.tokens)
        self._opened = message
        self._running = True
        self._out.append(self._answer(message, kept))
        return [*actions, Begin(spec)]

    def _draft(self, now: float, message: Draft) -> list[Action]:
        if self._opened is None:
            raise BadFrame("a draft before the first Open: the edge must open a turn first")
        if message.received > self._sent:
            raise BadFrame(f"the edge claims {message.received} tokens, {self._sent} were sent")
        self._frames += 1
        self._frame_at = now
        self._heard(now, message.received)
        self._pacer.acknowledged(now, message.received, (message.held_ms or 0) / 1000)
        unpacked = self._admission.nodes(message.nodes, self._node_count, self._opened.codec)
        first, self._node_count = self._node_count, self._node_count + len(unpacked)
        base = message.received if message.base is None else message.base
        if base > message.received:
            raise BadFrame(f"draft base {base} is beyond the {message.received} tokens that the edge holds")
        if not self._running:
            return []
        return [Offer(self.epoch, first, tuple(unpacked), base, message.received, message.step)]

    def _heard(self, now: float, received: int) -> None:
        """The edge holds `received` tokens; that is news if it had fewer when it last said so."""
        if received > self._received:
            self._unheard_since = now if received < self._sent else None
        self._received = received

    def _continues(self, message: Open, kept: int) -> bool:
        """True if `message` resumes the turn that is held: the same request, and nothing to append.

        A turn that was cancelled is not held: who asks for it again wants all of it. Nor is one whose log probabilities
        beyond `kept` were drawn by another server.
        """
        if self._opened is None or not (self._running or self._ended):
            return False
        if message.top_logprobs is not None and len(self.tokens) - kept > len(self._logprobs):
            return False
        return not message.append and _same_turn(message, self._opened)

    @property
    def _ended(self) -> bool:
        """True if the turn came to its own end."""
        return self._last is not None and self._last.finish not in (None, FinishReason.CANCELLED)

    def _abandon(self) -> list[Action]:
        was_running, self._running = self._running, False
        self._opened = self._last = self._final = None
        self._logprobs = []
        return [Abandon()] if was_running else []

    def _answer(self, message: Open, kept: int, resumed: bool = False) -> Opened:
        return self._admission.opened(message, kept, resumed)

    def _has_news(self, now: float) -> bool:
        if self._opened is None:
            return False
        unacked = self._frames > self._frames_acked and now >= self._frame_at + ACK_AFTER_S
        return len(self.tokens) > self._sent or self._final is not None or unacked

    def _commit(self, now: float) -> Commit:
        explicit_from, matched = self._sent, None
        if self._matched is not None and self._matched[1] >= self._sent:
            matched, explicit_from = self._matched[0], self._matched[1] + 1
        last, final = self._last, self._final
        verify_us, load = self._news_of(last) if last else (0, 0)
        return Commit(
            length=len(self.tokens),
            digest=digest.short(self._digests.at(len(self.tokens))),
            tokens=pack_tokens(self.tokens[explicit_from:], self._admission.vocab_size),
            matched=matched,
            ack=self._frames,
            held_us=round((now - self._frame_at) * 1e6) if self._frames else 0,
            verify_us=verify_us,
            load=load,
            next_in_ms=round(last.next_in_s * 1e3) if last else 0,
            finish=final.finish if final else None,
            text_end=final.text_end if final else None,
            totals=final.totals if final else None,
            logprobs=pack_logprobs(self._new_logprobs()),
        )

    def _new_logprobs(self) -> list[TokenLogprobs]:
        """Those of the tokens that the edge was not sent yet, matched ones included; none if none were asked for."""
        new = len(self.tokens) - self._sent
        return self._logprobs[len(self._logprobs) - new :] if self._logprobs and new else []

    def _news_of(self, last: Committed) -> tuple[int, int]:
        """(verify_us, load) if they have changed much since they were told; a message is cheaper without them."""
        figures = round(last.verify_s * 1e6), round(last.load * 100)
        if all(abs(new - told) <= TOLERANCE * told for new, told in zip(figures, self._told, strict=True)):
            return 0, 0
        self._told = figures
        return figures

    def _extend(self, tokens: tuple[int, ...]) -> None:
        self.tokens += tokens
        self._digests.extend(tokens)

    def _truncate(self, length: int) -> None:
        del self.tokens[length:]
        self._digests.truncate(length)


def _same_turn(a: Open, b: Open) -> bool:
    """True if two `Open`s ask for the same output."""
    neutral = {"epoch": 0, "keep": (), "append": b"", "target_rate": None, "model": "", "codec": 0}
    return dataclasses.replace(a, **neutral) == dataclasses.replace(b, **neutral)  # type: ignore[arg-type]
