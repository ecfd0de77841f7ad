"""An edge session and a fake cloud in one process and virtual time: every schedule that dice can think of."""

from __future__ import annotations

import random

from acespec.edge.brain.controller import Controller, FixedController
from acespec.edge.brain.draft_desk import DraftJob
from acespec.edge.brain.tree_shape import CHAIN, TreeShape
from acespec.edge.drafters.base import Candidate, Drafter, QuietDrafter, TurnContext
from acespec.edge.events import Event
from acespec.edge.session import EdgeSession
from acespec.edge.turn_request import TurnRequest
from tests.drafters import AdversarialDrafter, OracleDrafter, RandomDrafter
from tests.edge.fake_cloud import FakeCloud

VOCAB = 50
PROMPT = [3, 1, 4, 1, 5]


def make_truth(seed: int, length: int) -> list[int]:
    dice = random.Random(seed)
    return PROMPT + [dice.randrange(VOCAB) for _ in range(length)]


def make_session(controller: Controller | None = None, shape: TreeShape = CHAIN) -> EdgeSession:
    return EdgeSession(
        fingerprint=bytes(16), vocab_size=VOCAB, controller=controller or FixedController(4), shape=shape
    )


class World:
    """An edge, a fake cloud, and two FIFO queues between them, stepped in an order that dice decide."""

    def __init__(self, session: EdgeSession, cloud: FakeCloud, drafter: Drafter, dice: random.Random) -> None:
        self.session, self.cloud, self.drafter, self.dice = session, cloud, drafter, dice
        self.now = 100.0
        self.up: list[bytes] = []
        self.down: list[bytes] = []
        self.events: list[Event] = []
        self.job: DraftJob | None = None
        self.cuts = 0

    def run(self, ids: list[int], request: TurnRequest, most: int = 20_000) -> list[Event]:
        self.events = []
        self.drafter.begin(TurnContext(request.params, request.seed, len(ids), VOCAB))
        self.session.start_turn(self.now, ids, request)
        for _ in range(most):
            if not self.session.running:
                return self.events
            self.act()
        raise AssertionError("the turn does not end")

    def act(self) -> None:
        if self.cuts and self.dice.random() < 0.02:
            self.cut()
        self.dice.choice([self.write, self.write, self.deliver_up, self.deliver_down, self.think, self.step])()

    def write(self) -> None:
        self.now += self.dice.choice([0.0, 0.001, 0.02, 0.2])
        while (data := self.session.poll(self.now)) is not None:
            self.up.append(data)

    def deliver_up(self) -> None:
        if self.up:
            self.down += self.cloud.receive(self.up.pop(0))

    def step(self) -> None:
        self.cloud.step()
        if self.dice.random() < 0.6 and (data := self.cloud.commit()) is not None:
            self.down.append(data)

    def deliver_down(self) -> None:
        if not self.cloud.running and (data := self.cloud.commit()) is not None:
            self.down.append(data)
        if self.down:
            self.events += self.session.receive(self.now, self.down.pop(0))

    def think(self) -> None:
        if self.job is None:
            self.job = self.session.draft_job()
            return
        path = list(self.job.path)
        found: list[list[Candidate]] = []
        while len(found) < self.job.room and (level := self.drafter.propose(path, self.job.k)):
            found.append(level)
            path.append(level[0].token)
        self.session.drafted(self.job, found, seconds=0.001, silent=len(found) < self.job.room)
        self.job = None

    def cut(self) -> None:
        self.cuts -= 1
        self.up, self.down = [], []
        self.cloud.forget = self.dice.random() < 0.3
        self.session.reconnect(self.now)


def make_drafter(kind: str, truth: list[int]) -> Drafter:
    return {
        "none": QuietDrafter(),
        "random": RandomDrafter(1),
        "oracle": OracleDrafter(truth, 0.8),
        "perfect": OracleDrafter(truth, 1.0),
        "adversarial": AdversarialDrafter(truth, wild=True),
    }[kind]


def exchange(session: EdgeSession, cloud: FakeCloud, now: float) -> list[Event]:
    events: list[Event] = []
    while True:
        moved = False
        while (data := session.poll(now)) is not None:
            moved = True
            for answer in cloud.receive(data):
                events += session.receive(now, answer)
        if (commit := cloud.commit()) is not None:
            moved = True
            events += session.receive(now, commit)
        if not moved:
            return events
