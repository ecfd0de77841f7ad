"""Runs a schedule: the real state machines of both ends in virtual time, under every fault that a network can think of.

After it, and at many moments on the way, what the protocol promises must hold: every edge was told exactly the ids of
plain decoding, in order and once each; nothing waited for ever; and nothing grew beyond its bound on either side.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from acespec.cloud.draft_tree import MEMORY
from acespec.edge.brain.controller import AUTO_CAP
from acespec.edge.brain.tree_shape import WIDTH
from acespec.proto.errors import ProtocolError, Unavailable
from acespec.sim.agenda import Agenda
from acespec.sim.schedule import Fault, Schedule
from acespec.sim.toy_server import MAX_DRAFT, MAX_NODES, MAX_SESSIONS, ToyServer
from acespec.sim.virtual_edge import RuleBroken, VirtualEdge
from acespec.sim.virtual_server import ServerStream
from acespec.sim.virtual_stream import VirtualStream

REPLICAS = 2
DETECT_S = 1.0
"""Silence after which an edge gives a stream up, as keepalive does."""
LATE_S = 0.5
"""How much later than a held stream's last bytes the cloud learns that it is dead."""
MOST_ACTIONS = 60_000
OUTBOX = 2
MOST_GUESSES = AUTO_CAP * WIDTH
"""Of an edge that does not know its server's limits yet."""
LOST = Unavailable("the stream broke")


class Rehearsal:
    """One run of a schedule. `run` is all that a test needs; the rest lets one go step by step."""

    def __init__(self, schedule: Schedule) -> None:
        self.agenda = Agenda()
        self.schedule = schedule
        setup = schedule.setup
        self.servers = [self._server() for _ in range(REPLICAS)]
        count = 1 + max((ask.edge for ask in schedule.asks), default=0)
        self.edges = [
            VirtualEdge(
                self.agenda,
                setup,
                number,
                [ask for ask in schedule.asks if ask.edge == number],
                self._connect,
                self._newest_prompt,
            )
            for number in range(count)
        ]
        self._ends: dict[VirtualStream, tuple[ToyServer, ServerStream]] = {}
        self._trouble_s = 0.0
        self._over = False
        for edge in self.edges:
            self.agenda.at(0.0, edge.begin)

    def run(self) -> None:
        """Everything, to the end.

        Raises:
            RuleBroken: something that is promised did not hold.
            AcespecError: one of the ends found fault with the other.
        """
        for fault in self.schedule.faults:
            self.go_on(fault.at)
            self.inject(fault)
        self.finish()

    def go_on(self, until: float) -> None:
        """Let time pass."""
        while self.agenda.step(until):
            self._check_patience()
        self.agenda.run(until)

    def finish(self) -> None:
        """Let every edge come to its end; then everybody goes, and nothing may be left behind."""
        while not all(edge.idle for edge in self.edges):
            if not self.agenda.step(float("inf")):
                raise RuleBroken("a deadlock: nothing will ever happen again")
            self._check_patience()
        self._over = True
        for stream in list(self._ends):
            self._cloud_learns(stream)
        self.agenda.run(self.agenda.now + self.schedule.setup.grace + 3.0)
        for server in self.servers:
            _check_empty(server)

    def inject(self, fault: Fault) -> None:
        """Something happens, now."""
        self._trouble_s += fault.seconds + DETECT_S
        edge = self.edges[fault.edge % len(self.edges)]
        getattr(self, f"_{fault.kind}")(edge, fault.seconds)

    # -- streams -------------------------------------------------------------------------------------------------

    def _server(self) -> ToyServer:
        return ToyServer(self.agenda, self.schedule.setup, self._check_bounds)

    def _newest_prompt(self) -> list[int]:
        return max(self.edges, key=lambda e: (bool(e.prompt), e.began_at)).prompt

    def _connect(self, edge: VirtualEdge) -> None:
        setup = self.schedule.setup
        self._later(setup.up + setup.down, partial(self._accept, edge, edge.target))

    def _accept(self, edge: VirtualEdge, target: int) -> None:
        server = self.servers[target]
        if self._over or not server.alive or target != edge.target:
            edge.ended(None, Unavailable("connection refused"))
            return
        setup = self.schedule.setup
        stream = VirtualStream(self.agenda, setup.up, setup.down, setup.window)
        self._ends[stream] = server, server.accept(stream.up, stream.down, partial(self._ended, edge, stream))
        edge.connected(stream, stream.up, stream.down)

    def _ended(self, edge: VirtualEdge, stream: VirtualStream, error: ProtocolError) -> None:
        """The cloud has ended the stream, and the edge has read up to its end."""
        self._close(stream)
        edge.ended(stream, error)

    def _close(self, stream: VirtualStream) -> None:
        stream.up.close()
        stream.down.close()
        self._ends.pop(stream, None)

    def _cloud_learns(self, stream: VirtualStream) -> None:
        if stream in self._ends:
            _, end = self._ends[stream]
            self._close(stream)
            end.lost()

    def _edge_learns(self, edge: VirtualEdge, stream: VirtualStream) -> None:
        stream.down.close()
        edge.ended(stream, LOST)

    # -- faults --------------------------------------------------------------------------------------------------

    def _cut(self, edge: VirtualEdge, seconds: float) -> None:
        if stream := edge.stream:
            self._cloud_learns(stream)
            self._edge_learns(edge, stream)

    def _leave_half(self, edge: VirtualEdge, seconds: float) -> None:
        if stream := edge.stream:
            stream.up.hold(self.agenda.now + seconds)
            self._edge_learns(edge, stream)
            self._later(seconds + LATE_S, partial(self._cloud_learns, stream))

    def _lose_half(self, edge: VirtualEdge, seconds: float) -> None:
        if (stream := edge.stream) and stream in self._ends:
            stream.up.close()
            self._ends[stream][1].lost()
            self._later(seconds, partial(self._edge_learns, edge, stream))

    def _stall(self, edge: VirtualEdge, seconds: float) -> None:
        if stream := edge.stream:
            stream.hold(self.agenda.now + seconds)
            if seconds > DETECT_S:
                self._later(DETECT_S, partial(self._edge_learns, edge, stream))
                self._later(seconds + LATE_S, partial(self._cloud_learns, stream))

    def _deafen(self, edge: VirtualEdge, seconds: float) -> None:
        if stream := edge.stream:
            stream.down.hold(self.agenda.now + seconds)

    def _mute(self, edge: VirtualEdge, seconds: float) -> None:
        if stream := edge.stream:
            stream.up.hold(self.agenda.now + seconds)

    def _kill(self, edge: VirtualEdge, seconds: float) -> None:
        self._replace(edge.target, seconds)

    def _move(self, edge: VirtualEdge, seconds: float) -> None:
        edge.target = (edge.target + 1) % REPLICAS
        self._leave_half(edge, seconds)

    def _drain(self, edge: VirtualEdge, seconds: float) -> None:
        server, target = self.servers[edge.target], edge.target
        server.draining = True
        self._later(seconds, server.end_streams)
        self._later(seconds + LATE_S, lambda: self._replace(target, 0.0) if self.servers[target] is server else None)

    def _cancel(self, edge: VirtualEdge, seconds: float) -> None:
        edge.cancel()

    def _leave(self, edge: VirtualEdge, seconds: float) -> None:
        edge.leave()

    def _flip(self, edge: VirtualEdge, seconds: float) -> None:
        edge.tamper("flip")

    def _forge(self, edge: VirtualEdge, seconds: float) -> None:
        edge.tamper("forge")

    def _replace(self, target: int, seconds: float) -> None:
        """The process dies; another one takes its place after `seconds`."""
        dead = self.servers[target]
        if not dead.alive:
            return
        dead.kill()
        for stream, (server, _) in list(self._ends.items()):
            if server is dead:
                self._close(stream)
        for edge in self.edges:
            if (own := edge.stream) is not None and not own.up.open:
                self._later(self.schedule.setup.down, partial(self._edge_learns, edge, own))
        self._later(seconds, partial(self._restart, target))

    def _restart(self, target: int) -> None:
        self.servers[target] = self._server()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self.agenda.at(self.agenda.now + seconds, action)

    # -- promises ------------------------------------------------------------------------------------------------

    def _check_patience(self) -> None:
        if self.agenda.done > MOST_ACTIONS:
            raise RuleBroken(f"no end after {MOST_ACTIONS} actions: the two ends only keep each other busy")
        setup = self.schedule.setup
        for edge in self.edges:
            if (ask := edge.running) is not None:
                round_trip = setup.up + setup.down
                patience = 30.0 + 5.0 * self._trouble_s + ask.tokens * (2.0 + 8 * round_trip + setup.step)
                if self.agenda.now - edge.began_at > patience:
                    raise RuleBroken(f"a deadlock: {ask} is not answered after {patience:.0f} s")

    def _check_bounds(self) -> None:
        for edge in self.edges:
            _bound("unverified tokens of an edge", edge.session.unverified, max(AUTO_CAP, self.schedule.setup.ahead))
            _bound("guesses of an edge", edge.session.nodes, MAX_NODES if edge.session.terms else MOST_GUESSES)
            _bound("frames that wait at an edge", edge.session.outbox, OUTBOX)
        for server in self.servers:
            _bound("sessions of a verifier", len(server.hosts), MAX_SESSIONS)
            for turn in server.table.turns:
                _bound("draft nodes of a turn", turn.nodes, 2 * MAX_NODES + MEMORY + self.schedule.setup.run_ahead)
                ahead = len(turn.tokens) - max(turn.received, len(turn.spec.tokens))
                _bound("tokens beyond the edge's acknowledgement", ahead, self.schedule.setup.run_ahead + MAX_DRAFT)


def rehearse(schedule: Schedule) -> str | None:
    """Run `schedule`; what went wrong in one line, or None."""
    try:
        Rehearsal(schedule).run()
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError, AttributeError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    except (RuleBroken, ProtocolError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _bound(what: str, number: int, most: int) -> None:
    if number > most:
        raise RuleBroken(f"{what}: {number}, where {most} is the bound")


def _check_empty(server: ToyServer) -> None:
    if server.alive and (len(server.hosts) or server.table.pages.in_use or server.table.turns or server.streams):
        raise RuleBroken(
            f"left behind when all had gone: {len(server.hosts)} sessions, {server.table.pages.in_use} KV pages, "
            f"{len(server.table.turns)} turns, {len(server.streams)} streams"
        )
