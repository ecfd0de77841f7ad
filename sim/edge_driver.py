"""Drives a real edge session in virtual time: frames in and out, timers, and a drafter that takes its time.

What a gRPC stream and a drafting thread do for a session in a real edge. Who inherits from it says how drafts come
about, and what becomes of the session's events.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Generic, TypeVar

from acespec.edge.brain.draft_desk import DraftJob, Level
from acespec.edge.brain.hop import hop
from acespec.edge.events import Event
from acespec.edge.session import EdgeSession
from acespec.sim.agenda import Agenda
from acespec.sim.virtual_stream import BytePipe

SOONEST_S = 0.001

S = TypeVar("S")


class EdgeDriver(Generic[S]):
    """One edge. A proposal takes `token_s`; at most `hop` are made before what was drafted is handed in.

    Attributes:
        session: the state machine.
        stream: what carries the session now, if anything does.
    """

    def __init__(self, agenda: Agenda, session: EdgeSession, token_s: float, hop: int) -> None:
        self.session = session
        self.stream: S | None = None
        self._up: BytePipe | None = None
        self._agenda = agenda
        self._token_s = token_s
        self._hop = hop
        self._job: DraftJob | None = None
        self._job_began = 0.0
        self._found: list[Level] = []
        self._silent = False
        self._wake_at: float | None = None

    # -- what an edge is made of ---------------------------------------------------------------------------------

    def _hear(self, event: Event) -> None:
        """The session has news."""
        raise NotImplementedError

    def _propose(self, path: Sequence[int], k: int) -> Level:
        """See `Drafter.propose`; it takes its time elsewhere."""
        raise NotImplementedError

    # -- frames --------------------------------------------------------------------------------------------------

    def connected(self, stream: S, up: BytePipe, down: BytePipe) -> None:
        """A stream of two pipes is there."""
        self.stream = stream
        self._up = up
        down.on_frame = partial(self._receive, stream)
        up.on_room = self.write
        self.write()

    def write(self) -> None:
        """Write what the session has, as far as the stream takes it."""
        if self.stream is None or self._up is None:
            return
        up, session, now = self._up, self.session, self._agenda.now
        while up.room and (data := session.poll(now)) is not None:
            up.send(data)
        if up.room and (wake_at := session.wake_at()) is not None:
            self._wake(max(wake_at, now + SOONEST_S))

    def _wake(self, at: float) -> None:
        if self._wake_at is None or self._wake_at <= self._agenda.now or at < self._wake_at:
            self._wake_at = at
            self._agenda.at(at, self.write)

    def _receive(self, stream: S, data: bytes) -> None:
        if stream is not self.stream:
            return
        for event in self.session.receive(self._agenda.now, data):
            self._hear(event)
        self.draft()
        self.write()

    # -- the drafter ---------------------------------------------------------------------------------------------

    def draft(self) -> None:
        """Draft if there is work; a job whose path is void by now is interrupted, and keeps only what is done."""
        if self._job is not None and self.session.is_outbid(self._job):
            self._hand_in(int((self._agenda.now - self._job_began) / self._token_s) if self._token_s > 0 else 0)
        if self._job is None and (job := self.session.draft_job()):
            self._job = job
            self._job_began = self._agenda.now
            self._found, self._silent = hop(job, self._propose, lambda done: done < self._hop)
            self._agenda.at(self._job_began + len(self._found) * self._token_s, partial(self._drafted, job))

    def _drafted(self, job: DraftJob) -> None:
        if job is self._job:  # It may have been interrupted.
            self._hand_in(len(self._found))
            self.draft()
            self.write()

    def _hand_in(self, done: int) -> None:
        job, self._job = self._job, None
        if job is not None:
            seconds = self._agenda.now - self._job_began
            silent = self._silent and done >= len(self._found)
            self.session.drafted(job, self._found[:done], seconds=seconds, silent=silent)
