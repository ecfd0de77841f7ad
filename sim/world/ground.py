"""What all places of a run stand on, in virtual and in real time alike: one agenda, one text, one drafter's accuracy,
links whose seeds follow from the scenario's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from acespec.edge.drafters.replay_accuracy import read_accuracy
from acespec.proto.replay_text import ReplayText, mix, replay_text
from acespec.sim.agenda import Agenda
from acespec.sim.digest import EventDigest
from acespec.sim.spec import LinkSpec
from acespec.sim.world.place import Actor, Place
from acespec.sim.world.recorder import Recorder
from acespec.sim.world.scenario import Scenario


class Ground:
    """Makes the places of a scenario.

    Attributes:
        agenda: the time.
        digest: of what happens.
        recorder: takes figures.
        text: what the target says.
        running: edges whose turns are not over.
    """

    def __init__(self, scenario: Scenario, text: ReplayText) -> None:
        """`text`: what `scenario_text` says, however it is kept."""
        self._accuracy, _ = read_accuracy(scenario.drafter.acceptance)
        self._scenario = scenario
        self.agenda, self.digest = Agenda(), EventDigest()
        self.recorder = Recorder(self.agenda, self.digest, scenario.load.edges, scenario.target.target_rate)
        self.text = text
        self.running = scenario.load.edges

    def place(self, number: int, spec: LinkSpec, on_done: Callable[[], None]) -> Place:
        """The surroundings of edge `number`, whose link is `spec`; `on_done` hears that its last turn is over."""

        def done() -> None:
            self.running -= 1
            on_done()

        scenario = self._scenario
        return Place(
            number,
            seed=scenario.seed,
            agenda=self.agenda,
            digest=self.digest,
            recorder=self.recorder,
            spec=spec,
            accuracy=self._accuracy,
            token_s=scenario.drafter.token_s,
            text=self.text,
            vocab=scenario.target.vocab,
            load=scenario.load,
            on_done=done,
        )

    def settle(self, place: Place, actor: Callable[[], Actor]) -> None:
        """Let somebody move in when this place's user begins."""
        start = place.dice("start").random() * self._scenario.load.start_spread_s
        self.agenda.at(start, lambda: place.move_in(actor()))


def scenario_text(scenario: Scenario) -> ReplayText:
    """What the target says: the ids that are given, or those that the drafter's trace was recorded with."""
    _, trace = read_accuracy(scenario.drafter.acceptance)
    ids = scenario.target.ids
    return replay_text(Path(ids) if ids else trace, scenario.target.vocab)


def edge_link(scenario: Scenario, number: int) -> LinkSpec:
    """The link of edge `number`, with a seed of its own."""
    spec = scenario.link.spec()
    return replace(spec, seed=mix(scenario.seed, number, spec.seed) >> 1)
