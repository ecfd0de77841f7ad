"""Sessions in a running server: each binds its wire state machine to the backend and to its newest stream."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator

from acespec.cloud.admission import Admission
from acespec.cloud.backend import Backend, Committed, Offer, SessionKey, TurnSpec
from acespec.cloud.session import Abandon, Action, Begin, Resume, Session, Stop
from acespec.proto import wire
from acespec.proto.errors import BadFrame, Exhausted, ProtocolError, Superseded
from acespec.proto.messages import CloudMessage, EdgeMessage, Open

log = logging.getLogger(__name__)


def wire_size(message: CloudMessage) -> int:
    """Protobuf bytes of a message that goes down."""
    return len(wire.encode_cloud(message))


class Stream:
    """One gRPC stream, as far as a session cares: a bell to ring, and the error that should end it."""

    def __init__(self) -> None:
        self.bell = asyncio.Event()
        self.error: ProtocolError | None = None

    def fail(self, error: ProtocolError) -> None:
        """End the stream with `error`."""
        self.error = self.error or error
        self.bell.set()


class Host:
    """A session, the task that brings its commits, and the one stream that may speak for it."""

    def __init__(self, key: SessionKey, admission: Admission, backend: Backend) -> None:
        self.session = Session(key, admission, wire_size)
        self._backend = backend
        self._stream: Stream | None = None
        self._commits: asyncio.Task[None] | None = None
        self.detached_at = time.monotonic()

    @property
    def attached(self) -> bool:
        """True while a stream speaks for the session."""
        return self._stream is not None

    @property
    def turn_task(self) -> asyncio.Task[None] | None:
        """Done once the turn has ended; None before the first one."""
        return self._commits

    def receive(self, stream: Stream, message: EdgeMessage) -> None:
        """Take a frame; an `Open` makes its stream the session's own and ends the older one.

        Raises:
            ProtocolError: the frame is refused.
        """
        if stream is not self._stream and not isinstance(message, Open):
            raise Superseded("a newer stream has taken this session over")
        actions = self.session.receive(time.monotonic(), message)
        if isinstance(message, Open):
            self._adopt(stream)
        for action in actions:
            self._act(action)
        stream.bell.set()

    def poll(self, stream: Stream) -> CloudMessage | None:
        """The next frame for `stream`; None once a newer stream speaks for the session."""
        return self.session.poll(time.monotonic()) if stream is self._stream else None

    def detach(self, stream: Stream) -> None:
        """The stream has ended; the session waits for another one."""
        if stream is self._stream:
            self._stream = None
            self.detached_at = time.monotonic()
            self.session.disconnected()
            self._backend.attach(self.session.key, False)

    def end(self) -> None:
        """Free everything; the session can come back only by its tokens."""
        self._stop_commits()
        self._backend.forget(self.session.key)

    def _adopt(self, stream: Stream) -> None:
        if self._stream is not None and self._stream is not stream:
            self._stream.fail(Superseded("a newer stream has taken this session over"))
        self._stream = stream

    def _act(self, action: Action) -> None:
        key = self.session.key
        match action:
            case Offer():
                self._backend.offer(key, action)
            case Begin(spec):
                self._stop_commits()
                self._begin(spec)
            case Resume():
                self._backend.attach(key, True)
            case Stop():
                self._backend.close(key)
            case Abandon():
                self._stop_commits()
                self._backend.close(key)

    def _begin(self, spec: TurnSpec) -> None:
        try:
            commits = self._backend.open(spec)
        except ProtocolError:
            self.session.broken()
            raise
        self._commits = asyncio.create_task(self._bring(commits))

    async def _bring(self, commits: AsyncIterator[Committed]) -> None:
        try:
            async for item in commits:
                self.session.committed(item)
                if self._stream is not None:
                    self._stream.bell.set()
        except ProtocolError as error:
            log.warning("session %s: %s", self.session.key[1].hex()[:8], error)
            self.session.broken()
            if self._stream is not None:
                self._stream.fail(error)

    def _stop_commits(self) -> None:
        if self._commits is not None:
            self._commits.cancel()
            self._commits = None


class Hosts:
    """All sessions by (principal, id). Detached ones are kept for `grace_s` seconds."""

    def __init__(
        self, admission: Admission, backend: Backend, *, grace_s: float = 120.0, max_sessions: int = 64
    ) -> None:
        self._admission = admission
        self._backend = backend
        self._grace_s = grace_s
        self._max = max_sessions
        self._hosts: dict[SessionKey, Host] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    @property
    def running(self) -> int:
        """Sessions with an unfinished turn."""
        return sum(host.session.running for host in self._hosts.values())

    def receive(self, principal: str, host: Host | None, stream: Stream, message: EdgeMessage) -> Host:
        """Hand a frame to its session, which the stream's first `Open` names; the session.

        Raises:
            ProtocolError: the frame is refused, or there is no room for another session.
        """
        if isinstance(message, Open):
            host = self._find((principal, message.session_id))
        elif host is None:
            raise BadFrame(f"a stream must begin with Open, not {type(message).__name__}")
        known = host.session.key in self._hosts
        host.receive(stream, message)
        if not known:
            self._hosts[host.session.key] = host
        return host

    def expire(self) -> None:
        """End sessions whose grace period is over."""
        now = time.monotonic()
        for key, host in list(self._hosts.items()):
            if not host.attached and now - host.detached_at >= self._grace_s:
                host.end()
                del self._hosts[key]

    async def wait_idle(self, timeout_s: float) -> None:
        """Return once no attached turn runs, or after `timeout_s`."""
        tasks = [t for host in self._hosts.values() if host.attached and (t := host.turn_task) is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    def end_all(self) -> None:
        """End every session."""
        for host in self._hosts.values():
            host.end()
        self._hosts.clear()

    def _find(self, key: SessionKey) -> Host:
        if host := self._hosts.get(key):
            return host
        if len(self._hosts) >= self._max:
            self._make_room()
        return Host(key, self._admission, self._backend)

    def _make_room(self) -> None:
        idle = [h for h in self._hosts.values() if not h.attached]
        if not idle:
            raise Exhausted(f"all {self._max} sessions are in use; try again in a moment", retry_after_s=5.0)
        oldest = min(idle, key=lambda h: h.detached_at)
        oldest.end()
        del self._hosts[oldest.session.key]
