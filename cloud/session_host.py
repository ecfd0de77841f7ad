"""Sessions in a running server: each binds its wire state machine to the one stream that speaks for it (sans-IO).

Streams and turns are ports: `host.py` connects them to gRPC and to a backend, a simulation to its own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from acespec.cloud.admission import Admission
from acespec.cloud.backend import Committed, Offer, SessionKey, TurnSpec
from acespec.cloud.session import Abandon, Action, Begin, Resume, Session, Stop
from acespec.proto import wire
from acespec.proto.errors import BadFrame, Exhausted, ProtocolError, Superseded, Unavailable
from acespec.proto.messages import Checkpoint, CloudMessage, EdgeMessage, Open

log = logging.getLogger(__name__)


def wire_size(message: CloudMessage) -> int:
    """Protobuf bytes of a message that goes down."""
    return len(wire.encode_cloud(message))


class Listener(Protocol):
    """A stream, as far as a session cares."""

    def ring(self) -> None:
        """There may be something to write."""

    def fail(self, error: ProtocolError) -> None:
        """End the stream with `error`."""


class Turns(Protocol):
    """Where the turns of all sessions run. What they commit comes back by `SessionHost.committed` and `broke`."""

    def begin(self, host: SessionHost, spec: TurnSpec) -> None:
        """Start a turn, replacing the session's running one. Raises `ProtocolError` if there is no room."""

    def offer(self, key: SessionKey, offer: Offer) -> None:
        """Hand over drafts and the edge's progress."""

    def attach(self, key: SessionKey, attached: bool) -> None:
        """Say whether an edge listens."""

    def stop(self, key: SessionKey) -> None:
        """Cancel the running turn; its final commit comes back."""

    def abandon(self, key: SessionKey) -> None:
        """Cancel the running turn; nothing of it comes back any more."""

    def forget(self, key: SessionKey) -> None:
        """Abandon, and free all that is kept for the session."""


class SessionHost:
    """A session, and the one stream that may speak for it. `now` is in seconds of one monotonic clock."""

    def __init__(self, session: Session, turns: Turns, now: float) -> None:
        self.session = session
        self.detached_at = now
        self._turns = turns
        self._stream: Listener | None = None

    @property
    def attached(self) -> bool:
        """True while a stream speaks for the session."""
        return self._stream is not None

    def receive(self, now: float, stream: Listener, message: EdgeMessage) -> None:
        """Take a frame; an `Open` makes its stream the session's own and ends the older one.

        Raises:
            ProtocolError: the frame is refused.
        """
        if stream is not self._stream and not isinstance(message, Open):
            raise Superseded("a newer stream has taken this session over")
        actions = self.session.receive(now, message)
        if isinstance(message, Open):
            self._adopt(stream)
        for action in actions:
            self._act(action)
        stream.ring()

    def poll(self, now: float, stream: Listener) -> CloudMessage | None:
        """The next frame for `stream`; None once a newer stream speaks for the session."""
        return self.session.poll(now) if stream is self._stream else None

    def committed(self, item: Committed) -> None:
        """The running turn made tokens final."""
        self.session.committed(item)
        if self._stream is not None:
            self._stream.ring()

    def broke(self, error: ProtocolError) -> None:
        """The running turn ended by a fault: so does the stream."""
        log.warning("session %s: %s", self.session.key[1].hex()[:8], error)
        self.session.broken()
        if self._stream is not None:
            self._stream.fail(error)

    def detach(self, now: float, stream: Listener) -> None:
        """The stream has ended; the session waits for another one."""
        if stream is self._stream:
            self._stream = None
            self.detached_at = now
            self.session.disconnected()
            self._turns.attach(self.session.key, False)

    def give_up(self, now: float) -> None:
        """The edge has not acknowledged anything for too long: end its stream."""
        if (stream := self._stream) is not None:
            stream.fail(Unavailable("the edge has acknowledged nothing for too long; the session can be resumed"))
            self.detach(now, stream)

    def end(self) -> None:
        """Free everything; the session can come back only by its tokens."""
        self._turns.forget(self.session.key)

    def _adopt(self, stream: Listener) -> None:
        if self._stream is not None and self._stream is not stream:
            self._stream.fail(Superseded("a newer stream has taken this session over"))
        self._stream = stream

    def _act(self, action: Action) -> None:
        key = self.session.key
        match action:
            case Offer():
                self._turns.offer(key, action)
            case Begin(spec):
                self._begin(spec)
            case Resume():
                self._turns.attach(key, True)
            case Stop():
                self._turns.stop(key)
            case Abandon():
                self._turns.abandon(key)

    def _begin(self, spec: TurnSpec) -> None:
        try:
            self._turns.begin(self, spec)
        except ProtocolError:
            self.session.broken()
            raise


class SessionHosts:
    """All sessions by (principal, id). Detached ones are kept for `grace_s` seconds."""

    def __init__(self, admission: Admission, turns: Turns, *, grace_s: float = 120.0, max_sessions: int = 64) -> None:
        self._admission = admission
        self._turns = turns
        self._grace_s = grace_s
        self._max = max_sessions
        self._hosts: dict[SessionKey, SessionHost] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    @property
    def running(self) -> int:
        """Sessions with an unfinished turn."""
        return sum(host.session.running for host in self._hosts.values())

    @property
    def busy(self) -> bool:
        """True while an edge that listens has a turn whose last commit is not written."""
        return any(host.attached and host.session.unfinished for host in self._hosts.values())

    def receive(
        self, now: float, principal: str, host: SessionHost | None, stream: Listener, message: EdgeMessage
    ) -> SessionHost:
        """Hand a frame to its session, which the stream's first `Open` names; the session.

        Raises:
            ProtocolError: the frame is refused, or there is no room for another session.
        """
        if isinstance(message, Open):
            host = self._find(now, (principal, message.session_id), host, stream)
        elif host is None:
            raise BadFrame(f"a stream must begin with Open, not {type(message).__name__}")
        known = host.session.key in self._hosts
        host.receive(now, stream, message)
        if not known:
            self._hosts[host.session.key] = host
        return host

    def expire(self, now: float) -> None:
        """End sessions that were left for the grace period; detach those whose edge is silent for as long."""
        for key, host in list(self._hosts.items()):
            if not host.attached and now - host.detached_at >= self._grace_s:
                host.end()
                del self._hosts[key]
            elif host.attached and host.session.unheard_for(now) >= self._grace_s:
                host.give_up(now)

    def end_all(self) -> None:
        """End every session."""
        for host in self._hosts.values():
            host.end()
        self._hosts.clear()

    def _find(self, now: float, key: SessionKey, seat: SessionHost | None, stream: Listener) -> SessionHost:
        if seat is not None and seat.session.key != key:
            seat.detach(now, stream)
        if host := self._hosts.get(key):
            return host
        if len(self._hosts) >= self._max:
            self._make_room()
        session = Session(key, self._admission, wire_size, lambda checkpoint: self._shared(key, checkpoint))
        return SessionHost(session, self._turns, now)

    def _shared(self, key: SessionKey, checkpoint: Checkpoint) -> Sequence[int] | None:
        """The prefix that `checkpoint` names, if another session of the same principal holds it."""
        for (principal, _), host in self._hosts.items():
            if principal == key[0] and host.session.key != key and host.session.holds(checkpoint):
                return host.session.tokens[: checkpoint.length]
        return None

    def _make_room(self) -> None:
        idle = [h for h in self._hosts.values() if not h.attached]
        if not idle:
            raise Exhausted(f"all {self._max} sessions are in use; try again in a moment", retry_after_s=5.0)
        oldest = min(idle, key=lambda h: h.detached_at)
        oldest.end()
        del self._hosts[oldest.session.key]
