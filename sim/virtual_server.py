"""A verifier in virtual time: the real session hosts, turn table and scheduler over the toy target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from acespec.cloud.admission import SERVED, Admission
from acespec.cloud.backend import Committed, Offer, SessionKey, TurnSpec
from acespec.cloud.runner import Drawn, longest_sequence
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.session_host import SessionHost, SessionHosts
from acespec.cloud.step import Step
from acespec.cloud.stops import TextDecoder
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.proto import wire
from acespec.proto.errors import ProtocolError, ServerFault, Unavailable
from acespec.proto.messages import PROTOCOL_VERSION, ModelCard
from acespec.sim.agenda import Agenda
from acespec.sim.schedule import Setup
from acespec.sim.toy_target import ToyRunner
from acespec.sim.virtual_stream import VirtualStream

VOCAB = 16
FINGERPRINT = b"toy-target-16-id"
MAX_DRAFT = 8
MAX_NODES = 24
MAX_SESSIONS = 4
EXPIRE_EVERY_S = 1.0
SOONEST_S = 0.001
MAX_LENGTH = 400
PRINCIPAL = "rehearsal"

Ended = Callable[[ProtocolError], None]


class ServerStream:
    """The cloud's end of a stream: what a gRPC handler does, in virtual time."""

    def __init__(self, server: VirtualServer, stream: VirtualStream, on_end: Ended) -> None:
        self.error: ProtocolError | None = None
        self.host: SessionHost | None = None
        self._server = server
        self._stream = stream
        self._on_end = on_end
        self._open = True
        self._ringing = False
        self._wake_at: float | None = None
        stream.up.on_frame = self._receive
        stream.down.on_room = self.ring

    def ring(self) -> None:
        """See `Listener.ring`."""
        if not self._ringing:
            self._ringing = True
            self._server.agenda.at(self._server.agenda.now, self._write)

    def fail(self, error: ProtocolError) -> None:
        """See `Listener.fail`."""
        self.error = self.error or error
        self.ring()

    def lost(self) -> None:
        """The stream is gone; its session waits for another one."""
        if self._open:
            self._open = False
            self._server.streams.discard(self)
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

    def _write(self) -> None:
        self._ringing = False
        server, down = self._server, self._stream.down
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
    """One process of a verifier. It is dead for ever after `kill`; a restart is another one."""

    def __init__(self, agenda: Agenda, setup: Setup, on_step: Callable[[], None]) -> None:
        self.agenda = agenda
        self.alive = True
        self.draining = False
        self.runner = ToyRunner(VOCAB, MAX_LENGTH, setup.pages)
        self.table = TurnTable(
            self.runner,
            limits=Limits(MAX_DRAFT, MAX_NODES, setup.run_ahead, MAX_LENGTH),
            decoder=_no_text,
            free_run=FreeRun(setup.policy),
        )
        self.hosts = SessionHosts(
            Admission(_card(self.runner, setup), _no_encoder), self, grace_s=setup.grace, max_sessions=MAX_SESSIONS
        )
        self.streams: set[ServerStream] = set()
        self._step_s = setup.step
        self._on_step = on_step
        self._begun: dict[SessionKey, _Begun] = {}
        self._stepping = False
        self._kicked = False
        agenda.at(agenda.now + EXPIRE_EVERY_S, self._expire)

    def accept(self, stream: VirtualStream, on_end: Ended) -> ServerStream:
        """Take a new stream. `on_end` hears if this end ends it."""
        accepted = ServerStream(self, stream, on_end)
        self.streams.add(accepted)
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
            self._hand_over(key, last)

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

    def _kick(self, at: float | None = None) -> None:
        if at is not None:
            self.agenda.at(at, self._plan)
        elif not self._kicked:
            self._kicked = True
            self.agenda.at(self.agenda.now, self._plan)

    def _plan(self) -> None:
        self._kicked = False
        if not self.alive or self._stepping:
            return
        now = self.agenda.now
        step = self.table.plan(now)
        if step is None:
            wake_at = self.table.wake_at()
            if wake_at is not None:
                self._kick(max(wake_at, now + SOONEST_S))
            return
        self._stepping = True
        seconds = self._step_s * (1 + (step.rows + step.prompt_rows) / 32)
        self.agenda.at(now + seconds, partial(self._complete, step, self.runner.step(step.blocks), seconds))

    def _complete(self, step: Step, drawn: list[Drawn], seconds: float) -> None:
        self._stepping = False
        if not self.alive:
            return
        for key, committed in self.table.complete(self.agenda.now, step, drawn, seconds):
            self._hand_over(key, committed)
        self._on_step()
        self._kick()

    def _hand_over(self, key: SessionKey, item: Committed) -> None:
        """Like a queue between two tasks: the session takes it a moment later, unless the turn was given up."""
        turn = self._begun[key]

        def deliver() -> None:
            if self.alive and self._begun.get(key) is turn:
                turn.host.committed(item)

        self.agenda.at(self.agenda.now, deliver)

    def _expire(self) -> None:
        if self.alive:
            self.hosts.expire(self.agenda.now)
            self.agenda.at(self.agenda.now + EXPIRE_EVERY_S, self._expire)


def _card(runner: ToyRunner, setup: Setup) -> ModelCard:
    return ModelCard(
        model="toy",
        vocab_size=runner.vocab_size,
        fingerprint=FINGERPRINT,
        eos_ids=(),
        max_length=longest_sequence(runner),
        noise_version=0,
        noise_vector=b"",
        numerics_id=runner.numerics_id,
        max_draft=MAX_DRAFT,
        max_nodes=MAX_NODES,
        max_prompt=longest_sequence(runner) - 1,
        served=SERVED,
        server_version="virtual",
        protocol_version=PROTOCOL_VERSION,
        exact=True,
        free_run=setup.policy,
    )


def _no_encoder(text: str) -> list[int]:
    raise ServerFault(f"the toy target has no tokenizer for {text!r}")


def _no_text() -> TextDecoder:
    raise ServerFault("the toy target has no text")
