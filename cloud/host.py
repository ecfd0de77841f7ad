"""Sessions of a server that runs on asyncio: streams with a bell, and tasks that bring what a backend commits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from acespec.cloud.admission import Admission
from acespec.cloud.backend import Backend, Committed, Offer, SessionKey, TurnSpec
from acespec.cloud.session_host import SessionHost, SessionHosts
from acespec.proto.errors import ProtocolError

IDLE_CHECK_S = 0.02


class Stream:
    """One gRPC stream, as far as a session cares: a bell to ring, and the error that should end it."""

    def __init__(self) -> None:
        self.bell = asyncio.Event()
        self.error: ProtocolError | None = None

    def ring(self) -> None:
        """There may be something to write."""
        self.bell.set()

    def fail(self, error: ProtocolError) -> None:
        """End the stream with `error`."""
        self.error = self.error or error
        self.bell.set()


class TurnTasks:
    """The turns of all sessions on a backend; one task a turn brings its commits."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tasks: dict[SessionKey, asyncio.Task[None]] = {}

    def begin(self, host: SessionHost, spec: TurnSpec) -> None:
        """See `Turns.begin`."""
        self._stop_task(spec.session)
        commits = self._backend.open(spec)
        self._tasks[spec.session] = asyncio.create_task(_bring(host, commits))

    def offer(self, key: SessionKey, offer: Offer) -> None:
        """See `Turns.offer`."""
        self._backend.offer(key, offer)

    def attach(self, key: SessionKey, attached: bool) -> None:
        """See `Turns.attach`."""
        self._backend.attach(key, attached)

    def stop(self, key: SessionKey) -> None:
        """See `Turns.stop`."""
        self._backend.close(key)

    def abandon(self, key: SessionKey) -> None:
        """See `Turns.abandon`."""
        self._stop_task(key)
        self._backend.close(key)

    def forget(self, key: SessionKey) -> None:
        """See `Turns.forget`."""
        self._stop_task(key)
        self._backend.forget(key)

    def _stop_task(self, key: SessionKey) -> None:
        if task := self._tasks.pop(key, None):
            task.cancel()


async def _bring(host: SessionHost, commits: AsyncIterator[Committed]) -> None:
    try:
        async for item in commits:
            host.committed(item)
    except ProtocolError as error:
        host.broke(error)


class Hosts(SessionHosts):
    """All sessions of a server whose turns a backend runs."""

    def __init__(
        self, admission: Admission, backend: Backend, *, grace_s: float = 120.0, max_sessions: int = 64
    ) -> None:
        super().__init__(admission, TurnTasks(backend), grace_s=grace_s, max_sessions=max_sessions)

    async def wait_idle(self, timeout_s: float) -> None:
        """Return once every attached turn has ended and its last commit is written, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self.busy and time.monotonic() < deadline:  # noqa: ASYNC110 - a second's matter, at shutdown only
            await asyncio.sleep(IDLE_CHECK_S)
