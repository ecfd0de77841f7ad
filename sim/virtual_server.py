"""A verifier in virtual time: the real session hosts, turn table and scheduler; model and streams are made up.

A rehearsal runs it over a toy target, the world over replayed ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from acespec.cloud.admission import Admission
from acespec.cloud.backend import Committed, Offer, SessionKey, TurnSpec
from acespec.cloud.runner import Block, Drawn
from acespec.cloud.session_host import SessionHost, SessionHosts
from acespec.cloud.step import Step
from acespec.cloud.turn_table import TurnTable
from acespec.proto import wire
from acespec.proto.errors import ProtocolError, Unavailable
from acespec.proto.messages import EdgeMessage
from acespec.sim.agenda import Agenda
from acespec.sim.virtual_stream import BytePipe

EXPIRE_EVERY_S = 1.0
SOONEST_S = 0.001
PRINCIPAL = "virtual"

Ended = Callable[[ProtocolError], None]


class Model(Protocol):
    """What a step draws and how long it takes."""

    def draw(self, blocks: Sequence[Block]) -> list[Drawn]:
        """See `Runner.step`."""

    def seconds(self, step: Step) -> float:
        """How long `step` takes."""


class Observer:
    """Hears what goes on in a verifier; this one does not care."""

    def heard(self, key: SessionKey, message: EdgeMessage) -> None:
        """A frame of this session has come in, and was taken."""

    def begun(self, step: Step, seconds: float) -> None:
        """A step begins that will take so long."""

    def ended(self, step: Step, drawn: Sequence[Drawn]) -> None:
        """It has ended, and its turns have what it drew."""


class ServerStream:
    """The cloud's end of a stream: what a gRPC handler does, in virtual time."""

    def __init__(self, server: VirtualServer, up: BytePipe, down: BytePipe, on_end: Ended) -> None:
        self.error: ProtocolError | None = None
        self.host: SessionHost | None = None
        self._server = server
        self._down = down
        self._on_end = on_end
        self._open = True
        self._ringing = False
        self._wake_at: float | None = None
        up.on_frame = self._receive
        down.on_room = self.ring

    def ring(self) -> None:
        """See `Listener.ring`."""
        if not self._ringing:
            self._ringing = True
            self._server.agenda.soon(self._write)

    def fail(self, error: ProtocolError) -> None:
        """See `Listener.fail`."""
        self.error = self.error or error
        self.ring()

    def lost(self) -> None:
        """The stream is gone; its session waits for another one."""
        if self._open:
            self._open = False
            self._server.streams.pop(self, None)
            if self.host is not None:
                self.host.detach(self._server.agenda.now, self)

    def _receive(self, data: bytes) -> None:
        server = self._server
        if not (self._open and server.alive):
            return
        try:
            message = wire.decode_edge(data)
            self.host = server.hosts.receive(server.agenda.now, PRINCIPAL, self.host, self, message)
        except ProtocolError as error:
            self.fail(error)
        else:
            server.observer.heard(self.host.session.key, message)

    def _write(self) -> None:
        self._ringing = False
        server, down = self._server, self._down
        if not (self._open and server.alive):
            return
        now = server.agenda.now
        while self.host is not None and down.room and (message := self.host.poll(now, self)) is not None:
            down.send(wire.encode_cloud(message))
        if self.error is not None and down.room:
            self.lost()
            down.finish(partial(self._on_end, self.error))
        elif self.host is not None and (wake_at := self.host.session.wake_at()) is not None:
            self._wake(max(wake_at, now + SOONEST_S))

    def _wake(self, at: float) -> None:
        if self._wake_at is None or self._wake_at <= self._server.agenda.now or at < self._wake_at:
            self._wake_at = at
            self._server.agenda.at(at, self.ring)


@dataclass(eq=False, slots=True)
class _Begun:
    """A turn that was begun, and whose it is."""

    host: SessionHost


class VirtualServer:
    """One process of a verifier. It is dead for ever after `kill`; a restart is another one.

    Args:
        table: the turns; its runner answers for sizes only, `model` computes.
    """

    def __init__(
        self,
        agenda: Agenda,
        table: TurnTable,
        admission: Admission,
        model: Model,
        *,
        grace_s: float,
        max_sessions: int,
        observer: Observer | None = None,
    ) -> None:
        self.agenda = agenda
        self.alive = True
        self.draining = False
        self.table = table
        self.hosts = SessionHosts(admission, self, grace_s=grace_s, max_sessions=max_sessions)
        self.observer = observer or Observer()
        self.streams: dict[ServerStream, None] = {}
        self._model = model
        self._begun: dict[SessionKey, _Begun] = {}
        self._stepping = False
        self._kicked = False
        self._plan_at: float | None = None
        agenda.at(agenda.now + EXPIRE_EVERY_S, self._expire)

    def accept(self, up: BytePipe, down: BytePipe, on_end: Ended) -> ServerStream:
        """Take a new stream of two pipes. `on_end` hears if this end ends it."""
        accepted = ServerStream(self, up, down, on_end)
        self.streams[accepted] = None
        if self.draining:
            accepted.fail(Unavailable("draining"))
        return accepted

    def kill(self) -> None:
        """Die, with everything that is held."""
        self.alive = False

    def end_streams(self) -> None:
        """The end of a drain."""
        for stream in list(self.streams):
            stream.fail(Unavailable("shutting down"))

    # -- the port `Turns` ----------------------------------------------------------------------------------------

    def begin(self, host: SessionHost, spec: TurnSpec) -> None:
        """See `Turns.begin`."""
        self._begun.pop(spec.session, None)
        self.table.close(spec.session)
        self.table.open(self.agenda.now, spec)
        self._begun[spec.session] = _Begun(host)
        self._kick()

    def offer(self, key: SessionKey, offer: Offer) -> None:
        """See `Turns.offer`."""
        self.table.offer(self.agenda.now, key, offer)
        self._kick()

    def attach(self, key: SessionKey, attached: bool) -> None:
        """See `Turns.attach`."""
        self.table.attach(key, attached)
        self._kick()

    def stop(self, key: SessionKey) -> None:
        """See `Turns.stop`."""
        if last := self.table.close(key):
            self._hand_over([(key, last)])

    def abandon(self, key: SessionKey) -> None:
        """See `Turns.abandon`."""
        self._begun.pop(key, None)
        self.table.close(key)

    def forget(self, key: SessionKey) -> None:
        """See `Turns.forget`."""
        self.abandon(key)
        self.table.forget(key)
        self._kick()

    # -- steps ---------------------------------------------------------------------------------------------------

    def _kick(self) -> None:
        """Look for a step, unless one runs: its end looks anyway."""
        if not self._kicked and not self._stepping:
            self._kicked = True
            self.agenda.soon(self._plan)

    def _plan(self) -> None:
        self._kicked = False
        if not self.alive or self._stepping:
            return
        now = self.agenda.now
        step = self.table.plan(now)
        if step is None:
            self._sleep(self.table.wake_at())
            return
        self._stepping = True
        seconds = self._model.seconds(step)
        self.observer.begun(step, seconds)
        self.agenda.at(now + seconds, partial(self._complete, step, self._model.draw(step.blocks), seconds))

    def _sleep(self, until: float | None) -> None:
        """Look again at `until`, if nothing happens before."""
        now = self.agenda.now
        if until is None:
            return
        until = max(until, now + SOONEST_S)
        if self._plan_at is None or self._plan_at <= now or until < self._plan_at:
            self._plan_at = until
            self.agenda.at(until, self._kick)

    def _complete(self, step: Step, drawn: list[Drawn], seconds: float) -> None:
        self._stepping = False
        if not self.alive:
            return
        self._hand_over(self.table.complete(self.agenda.now, step, drawn, seconds))
        self.observer.ended(step, drawn)
        self._kick()

    def _hand_over(self, news: list[tuple[SessionKey, Committed]]) -> None:
        """Like queues between tasks: each session takes its own a moment later, unless the turn was given up."""
        self.agenda.soon(partial(self._deliver, [(self._begun[key], key, item) for key, item in news]))

    def _deliver(self, news: list[tuple[_Begun, SessionKey, Committed]]) -> None:
        for turn, key, item in news:
            if self.alive and self._begun.get(key) is turn:
                turn.host.committed(item)

    def _expire(self) -> None:
        if self.alive:
            self.hosts.expire(self.agenda.now)
            self.agenda.at(self.agenda.now + EXPIRE_EVERY_S, self._expire)
