"""Faults planted in the state machines: the random schedules must find every one of them.

Each plant breaks one rule of docs/protocol.md. That the rehearsal fails with it is what shows that the rule is tested.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from acespec.cloud.backend import Committed, Offer
from acespec.cloud.draft_tree import DraftTree
from acespec.cloud.session import Resume, Session
from acespec.cloud.session_host import Listener, SessionHost, SessionHosts
from acespec.cloud.turn import Turn
from acespec.edge.brain.draft_tree import DraftTree as EdgeTree
from acespec.edge.cadence import Cadence
from acespec.edge.sequence import CommittedSequence
from acespec.edge.session import EdgeSession, Phase
from acespec.proto.messages import Checkpoint, Draft, EdgeMessage, Open
from acespec.sim.rehearsal import rehearse
from acespec.sim.schedule import Schedule
from acespec.sim.schedule_dice import random_schedule
from acespec.sim.virtual_edge import VirtualEdge
from acespec.sim.virtual_stream import VirtualStream

MOST_SCHEDULES = 800
Plant = Callable[[pytest.MonkeyPatch], None]


class Anything(int):
    """A digest that equals every other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def skip_the_digest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommittedSequence, "check", lambda self: Anything())


def reuse_a_node_id(patch: pytest.MonkeyPatch) -> None:
    ship = EdgeTree.ship

    def reusing(self: EdgeTree, first_id: int, limit: int) -> list[object]:
        return list(ship(self, max(0, first_id - 1), limit))

    patch.setattr(EdgeTree, "ship", reusing)


def take_frames_of_old_streams(patch: pytest.MonkeyPatch) -> None:
    receive = SessionHost.receive

    def careless(self: SessionHost, now: float, stream: Listener, message: EdgeMessage) -> None:
        receive(self, now, stream if isinstance(message, Open) else (self._stream or stream), message)

    patch.setattr(SessionHost, "receive", careless)
    patch.setattr(SessionHost, "_adopt", lambda self, stream: setattr(self, "_stream", stream))


def take_opens_of_old_epochs(patch: pytest.MonkeyPatch) -> None:
    receive = Session.receive

    def forgetful(self: Session, now: float, message: EdgeMessage) -> list[object]:
        if isinstance(message, Open):
            self.epoch = min(self.epoch, message.epoch - 1)
        return list(receive(self, now, message))

    patch.setattr(Session, "receive", forgetful)


def take_commits_before_opened(patch: pytest.MonkeyPatch) -> None:
    receive = EdgeSession.receive

    def hasty(self: EdgeSession, now: float, data: bytes) -> list[object]:
        if self._phase is Phase.OPENING and data[:1] == COMMIT:
            self._phase = Phase.OPEN
        return list(receive(self, now, data))

    patch.setattr(EdgeSession, "receive", hasty)


def name_nodes_of_an_old_epoch(patch: pytest.MonkeyPatch) -> None:
    committed = Session.committed

    def forgetful(self: Session, item: Committed) -> None:
        committed(self, dataclasses.replace(item, epoch=self.epoch))

    patch.setattr(Session, "committed", forgetful)


def keep_node_ids_across_epochs(patch: pytest.MonkeyPatch) -> None:
    renew = Session._renew

    def forgetful(self: Session, message: Open) -> None:
        count = self._node_count
        renew(self, message)
        self._node_count = count

    patch.setattr(Session, "_renew", forgetful)


def never_acknowledge(patch: pytest.MonkeyPatch) -> None:
    draft = EdgeSession._draft

    def deaf(self: EdgeSession, now: float) -> Draft:
        return dataclasses.replace(draft(self, now), received=self._prompt_len, base=len(self._sequence))

    patch.setattr(EdgeSession, "_draft", deaf)


def never_answer_in_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cadence, "ack_at", lambda self, rtt, drafting: None)
    patch.setattr(Cadence, "request_at", lambda self, rtt, dry: float("inf"))


def take_no_acknowledgement(patch: pytest.MonkeyPatch) -> None:
    offer = Turn.offer

    def deaf(self: Turn, given: Offer) -> None:
        received = self.received
        offer(self, given)
        self.received = received

    patch.setattr(Turn, "offer", deaf)


def run_ahead_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turn, "may_step", property(lambda self: not self.closed and self.finish is None and self.attached))


def _matched_off_by(step: int) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        match = DraftTree._match

        def off(self: DraftTree, node_id: int, position: int) -> None:
            match(self, node_id, position)
            self.last_matched = (max(0, node_id + step), position)

        patch.setattr(DraftTree, "_match", off)

    return plant


def match_a_position_off_by_one(patch: pytest.MonkeyPatch) -> None:
    match = DraftTree._match
    patch.setattr(DraftTree, "_match", lambda self, node_id, position: match(self, node_id, position - 1))


def deliver_commits_twice(patch: pytest.MonkeyPatch) -> None:
    receive = VirtualEdge._receive

    def twice(self: VirtualEdge, stream: VirtualStream, data: bytes) -> None:
        receive(self, stream, data)
        if data[:1] == COMMIT:
            receive(self, stream, data)

    patch.setattr(VirtualEdge, "_receive", twice)


def lose_a_commit(patch: pytest.MonkeyPatch) -> None:
    receive = VirtualEdge._receive

    def lossy(self: VirtualEdge, stream: VirtualStream, data: bytes) -> None:
        if data[:1] != COMMIT or len(data) % 7:
            receive(self, stream, data)

    patch.setattr(VirtualEdge, "_receive", lossy)


def resume_a_cancelled_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "_ended", property(lambda self: self._last is not None))


def go_on_where_the_edge_is_not(patch: pytest.MonkeyPatch) -> None:
    resume = Session._resume

    def ahead(self: Session, message: Open, kept: int) -> list[object]:
        actions = list(resume(self, message, kept))
        self._sent = len(self.tokens)
        return actions

    patch.setattr(Session, "_resume", ahead)


def resume_without_looking_at_the_request(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("acespec.cloud.session._same_turn", lambda a, b: True)


def forget_to_attach(patch: pytest.MonkeyPatch) -> None:
    act = SessionHost._act

    def lazy(self: SessionHost, action: object) -> None:
        if not isinstance(action, Resume):
            act(self, action)  # type: ignore[arg-type]

    patch.setattr(SessionHost, "_act", lazy)


def share_the_wrong_prefix(patch: pytest.MonkeyPatch) -> None:
    shared = SessionHosts._shared

    def wrong(self: SessionHosts, key: tuple[str, bytes], checkpoint: Checkpoint) -> Sequence[int] | None:
        prefix = shared(self, key, checkpoint)
        return None if prefix is None else [*prefix[:-1], prefix[-1] ^ 1]

    patch.setattr(SessionHosts, "_shared", wrong)


def never_expire(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionHosts, "expire", lambda self, now: None)


def write_the_last_commit_once_only(patch: pytest.MonkeyPatch) -> None:
    resume = Session._resume

    def forgetful(self: Session, message: Open, kept: int) -> list[object]:
        actions = list(resume(self, message, kept))
        self._final = None
        return actions

    patch.setattr(Session, "_resume", forgetful)


COMMIT = b"\x12"
"""The tag that a `CloudFrame` with a `Commit` begins with."""

PLANTS: list[Plant] = [
    skip_the_digest,
    reuse_a_node_id,
    take_frames_of_old_streams,
    take_opens_of_old_epochs,
    take_commits_before_opened,
    name_nodes_of_an_old_epoch,
    keep_node_ids_across_epochs,
    never_acknowledge,
    never_answer_in_time,
    take_no_acknowledgement,
    run_ahead_for_ever,
    pytest.param(_matched_off_by(1), id="match_the_next_node"),  # type: ignore[list-item]
    pytest.param(_matched_off_by(-1), id="match_the_node_before"),  # type: ignore[list-item]
    match_a_position_off_by_one,
    deliver_commits_twice,
    lose_a_commit,
    resume_a_cancelled_turn,
    go_on_where_the_edge_is_not,
    resume_without_looking_at_the_request,
    forget_to_attach,
    share_the_wrong_prefix,
    never_expire,
    write_the_last_commit_once_only,
]


def first_failure() -> tuple[int, str] | None:
    for seed in range(MOST_SCHEDULES):
        for schedule in (random_schedule(seed, most_faults=10), much_accepted(seed)):
            if (fault := rehearse(schedule)) is not None:
                return seed, fault
    return None


def much_accepted(seed: int) -> Schedule:
    """Slow steps with drafts that are nearly always right: something is under way whenever something breaks."""
    schedule = random_schedule(seed, most_faults=10)
    setup = dataclasses.replace(
        schedule.setup, up=0.02, down=0.3, step=0.05, draft=0.001, accuracy=0.9, ahead=8, grace=30.0, run_ahead=64
    )
    return dataclasses.replace(schedule, setup=setup)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = first_failure()
    assert found is not None, f"{MOST_SCHEDULES} schedules did not notice"
