"""Tracing the real session in virtual time: the trace tells the whole run, and the run does not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from acespec.edge.session import EdgeSession
from acespec.edge.tracing.trace_flights import flights_of
from acespec.edge.tracing.trace_reader import Trace, read_trace
from acespec.edge.tracing.trace_summary import summary_of
from acespec.edge.tracing.trace_writer import TraceWriter
from acespec.edge.watch import CommitSeen, Drafted, GuessSeen, Sent
from acespec.sim.world.place import Actor, Place
from acespec.sim.world.scenario import DrafterSpec, LinkChoice, LoadSpec, Scenario, StrategySpec, TargetSpec
from acespec.sim.world.strategies.ours import Ours
from acespec.sim.world.strategies.real_edge import RealEdge
from acespec.sim.world.world import World

SCENARIO = Scenario(
    seed=3,
    duration_s=600.0,
    link=LinkChoice("wan50"),
    target=TargetSpec(profile="a100-70b"),
    drafter=DrafterSpec(acceptance="0.8"),
    load=LoadSpec(edges=1, tokens=120, turns=2),
    strategy=StrategySpec("ours", {"tree": "on"}),
)


class Run:
    def __init__(self, path: Path | None) -> None:
        self.sessions: list[EdgeSession] = []
        writers: list[TraceWriter] = []
        sessions = self.sessions

        class Traced(Ours):
            def begin(self, place: Place) -> Actor:
                actor = super().begin(place)
                assert isinstance(actor, RealEdge)
                sessions.append(actor.session)
                for writer in writers:
                    actor.session.watch(writer.session())
                return actor

        self.world = World(SCENARIO, Traced)
        if path is not None:
            writers.append(TraceWriter(path, clock=lambda: self.world.agenda.now))
        self.world.run()
        for writer in writers:
            writer.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Trace]:
    path = tmp_path_factory.mktemp("trace") / "run.jsonl"
    return Run(path), read_trace(path)


def test_the_run_does_not_notice(run: tuple[Run, Trace]) -> None:
    assert run[0].world.digest.hex() == Run(None).world.digest.hex()


def test_every_token_message_and_byte_is_in_the_trace(run: tuple[Run, Trace]) -> None:
    (session,), trace = run[0].sessions, run[1]
    commits = [m.happening for m in trace.moments if isinstance(m.happening, CommitSeen)]
    summary = summary_of(trace)
    told = [token for commit in commits for token in commit.tokens]
    generated = sum(len(place.wishes) * SCENARIO.load.tokens for place in run[0].world.places)
    assert summary.tokens == len(told) == generated
    assert told[-50:] == session.ids[-50:]
    assert summary.turns == 2
    wire = session.wire_totals(run[0].world.agenda.now)
    assert (summary.wire.up_messages, summary.wire.up_payload_bytes) == (wire.up_messages, wire.up_payload_bytes)
    assert (summary.wire.down_messages, summary.wire.down_payload_bytes) == (
        wire.down_messages,
        wire.down_payload_bytes,
    )
    assert abs(summary.wire.up_bytes - wire.up_bytes) <= 52, "but for a last bare acknowledgement"
    cache = session.branch_cache
    assert (summary.surprises, summary.covered, summary.saved) == (cache.surprises, cache.covered, cache.saved)


def test_what_a_commit_names_was_drafted_and_shipped_before(run: tuple[Run, Trace]) -> None:
    drafted: dict[int, GuessSeen] = {}
    shipped: set[int] = set()
    named = 0
    for moment in run[1].moments:
        match moment.happening:
            case Drafted() as draft:
                drafted |= {guess.key: guess for guess in draft.guesses if guess.key >= 0}
            case Sent() as message:
                assert all(key in drafted for key in message.keys)
                assert not shipped & set(message.keys), "a node is shipped once"
                shipped |= set(message.keys)
            case CommitSeen() as commit:
                start = commit.length - len(commit.tokens)
                held = {(drafted[key].position, drafted[key].token) for key in shipped}
                assert all((start + at, token) in held for at, token in enumerate(commit.tokens[: commit.named]))
                named += commit.named
    assert named > 30


def test_estimated_arrivals_are_near_the_true_ones(run: tuple[Run, Trace]) -> None:
    flights = flights_of(run[1])
    ups = [flight for flight in flights if flight.up]
    assert all(flight.sent < flight.arrived < flight.sent + 2 for flight in ups)
    assert not any(flight.lost for flight in ups)
    summary = summary_of(run[1])
    assert summary.rtt_ms is not None
    assert summary.median_draft_age_ms is not None
    assert summary.rtt_ms / 4 < summary.median_draft_age_ms < 1000
