"""Runs a scenario: builds agenda, links, places and strategy, lets virtual time pass, and gathers what came of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version

from acespec.cloud.replay.runner import loaded
from acespec.sim.narrow_stream import NarrowStream
from acespec.sim.world.ground import Ground, edge_link, scenario_text
from acespec.sim.world.known_text import KnownText
from acespec.sim.world.result import Result, Traffic
from acespec.sim.world.scenario import Scenario, Value
from acespec.sim.world.strategies.registry import Strategy, find_strategy, params_of
from acespec.sim.world.tally import make_result
from acespec.sim.world.verifier_queue import VerifierQueue

SLICES = 200
"""Times that progress is reported."""

StrategyMaker = Callable[["World", Mapping[str, Value]], Strategy]


class World:
    """What all edges of a run share.

    Attributes:
        scenario: what runs.
        agenda: the time.
        recorder: takes figures.
        timing: of the verifier, the background's share included.
        max_rows: of a step.
        places: one an edge.
    """

    def __init__(self, scenario: Scenario, strategy: StrategyMaker | None = None) -> None:
        """`strategy` takes the place of the scenario's own class, with the same parameters: who wants to watch one."""
        target = scenario.target
        self.text = KnownText(scenario_text(scenario))
        self._ground = ground = Ground(scenario, self.text)
        self.scenario = scenario
        self.agenda, self.digest, self.recorder = ground.agenda, ground.digest, ground.recorder
        self.timing = loaded(target.timing(), target.background)
        self.max_rows = target.max_rows or max(self.timing.knee(), target.max_draft + 1)
        self.places = [
            ground.place(number, edge_link(scenario, number), self._one_done) for number in range(scenario.load.edges)
        ]
        make = strategy or find_strategy(scenario.strategy.name).load()
        self._strategy = make(self, params_of(scenario.strategy))
        for place in self.places:
            ground.settle(place, partial(self._strategy.begin, place))

    def verifier_queue(self) -> VerifierQueue:
        """A verifier without a scheduler of its own, of this world's profile. One strategy makes one."""
        return VerifierQueue(self.agenda, self.timing, self.max_rows, self.recorder)

    def run(self, progress: Callable[[float], None] | None = None) -> None:
        """Let time pass until the end of the scenario, or of all turns. `progress` hears shares from 0 to 1."""
        duration = self.scenario.duration_s
        with _collector_at_rest():
            for part in range(1, SLICES + 1):
                going = self.agenda.run(duration * part / SLICES)
                if progress is not None:
                    progress(part / SLICES if going else 1.0)
                if not going:
                    return

    def traffic(self) -> list[Traffic]:
        """What went over each edge's link."""
        return [_traffic(place.stream) for place in self.places]

    def _one_done(self) -> None:
        if not self._ground.running:
            self.agenda.stop()


def run(
    scenario: Scenario,
    progress: Callable[[float], None] | None = None,
    strategy: StrategyMaker | None = None,
) -> Result:
    """Run `scenario` in virtual time. `progress` hears shares from 0 to 1; `strategy` as `World` takes it.

    Raises:
        UsageError: the scenario names something that is not there.
    """
    began = time.perf_counter()
    world = World(scenario, strategy)
    world.run(progress)
    return make_result(
        scenario,
        world.recorder,
        world.traffic(),
        version=version("acespec"),
        digest=world.digest.hex(),
        virtual_s=world.agenda.now,
        events=world.agenda.done,
        wall_s=time.perf_counter() - began,
    )


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """A run makes hardly any garbage in cycles, and looking for it among many sessions takes a tenth of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _traffic(stream: NarrowStream[object] | None) -> Traffic:
    if stream is None:
        return Traffic()
    up, down = stream.up, stream.down
    return Traffic(
        stream.client.bytes,
        stream.server.bytes,
        stream.client.packets,
        stream.server.packets,
        up.payload,
        down.payload,
        up.messages,
        down.messages,
    )
