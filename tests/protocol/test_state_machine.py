"""hypothesis drives the world: it asks, breaks things, lets time pass, in orders that nobody thought of."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from acespec.sim.rehearsal import Rehearsal
from acespec.sim.schedule import ASKS, Ask, Fault, Schedule, Setup
from acespec.sim.schedule_dice import POLICIES

FORGEABLE = ("flip", "forge")
BROKEN = ("cut", "leave_half", "lose_half", "stall", "deafen", "mute", "move", "kill", "drain")
SECONDS = st.sampled_from((0.0, 0.05, 0.3, 1.2, 3.0))
EDGES = st.integers(0, 1)
MOST_ASKS = 8

setups = st.builds(
    Setup,
    policy=st.sampled_from(POLICIES),
    rate=st.sampled_from((0.0, 20.0)),
    up=st.sampled_from((0.0, 0.05, 0.3)),
    down=st.sampled_from((0.0, 0.05, 0.3)),
    step=st.sampled_from((0.002, 0.05)),
    draft=st.sampled_from((0.001, 0.04)),
    accuracy=st.sampled_from((0.0, 0.5, 0.9, 1.0)),
    ahead=st.sampled_from((-1, 0, 1, 8)),
    window=st.sampled_from((2, 64)),
    grace=st.sampled_from((0.5, 30.0)),
    run_ahead=st.sampled_from((4, 64)),
    salt=st.integers(0, 1000),
)


class TwoEdgesAndTwoReplicas(RuleBasedStateMachine):
    """All promises are checked by the rehearsal itself, while it runs and at its end."""

    @initialize(setup=setups)
    def begin(self, setup: Setup) -> None:
        self.world = Rehearsal(Schedule(setup, (Ask(0, "new", 20, 1), Ask(1, "new", 12, 2))))
        self.asked = 2

    @rule(seconds=st.sampled_from((0.01, 0.05, 0.2, 1.0, 4.0)))
    def wait(self, seconds: float) -> None:
        self.world.go_on(self.world.agenda.now + seconds)

    @precondition(lambda self: self.asked < MOST_ASKS)
    @rule(edge=EDGES, kind=st.sampled_from(ASKS), tokens=st.integers(1, 24), seed=st.integers(0, 50))
    def ask(self, edge: int, kind: str, tokens: int, seed: int) -> None:
        self.asked += 1
        self.world.edges[edge].wish(Ask(edge, kind, tokens, seed))

    @rule(edge=EDGES, kind=st.sampled_from(BROKEN), seconds=SECONDS)
    def break_something(self, edge: int, kind: str, seconds: float) -> None:
        self.world.inject(Fault(self.world.agenda.now, kind, edge, seconds))

    @rule(edge=EDGES, kind=st.sampled_from(("cancel", "leave")))
    def change_ones_mind(self, edge: int, kind: str) -> None:
        self.world.inject(Fault(self.world.agenda.now, kind, edge))

    @rule(edge=EDGES, kind=st.sampled_from(FORGEABLE))
    def tamper(self, edge: int, kind: str) -> None:
        self.world.inject(Fault(self.world.agenda.now, kind, edge))

    @invariant()
    def sequences_are_what_was_told(self) -> None:
        for edge in self.world.edges if hasattr(self, "world") else ():
            assert edge.session.ids[: len(edge.prompt)] == edge.prompt

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


TestTwoEdgesAndTwoReplicas = TwoEdgesAndTwoReplicas.TestCase
TestTwoEdgesAndTwoReplicas.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
