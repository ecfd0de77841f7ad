"""The edge session under any schedule: it ends with exactly the known ids."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.edge.brain.controller import FixedController
from acespec.edge.brain.controllers import make_controller
from acespec.edge.brain.tree_shape import tree_shape
from acespec.edge.drafters.base import QuietDrafter
from acespec.edge.events import Committed, Finished, Reopened
from acespec.edge.turn_request import TurnRequest
from acespec.proto.errors import Desync
from acespec.proto.messages import FinishReason
from tests.drafters import OracleDrafter
from tests.edge.fake_cloud import FakeCloud
from tests.edge.world import PROMPT, VOCAB, World, exchange, make_drafter, make_session, make_truth


@settings(max_examples=250, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    kind=st.sampled_from(["none", "random", "oracle", "perfect", "adversarial"]),
    length=st.one_of(st.sampled_from(["rate", "confidence", "ucb"]), st.integers(0, 16)),
    tokens=st.integers(1, 60),
    cuts=st.integers(0, 3),
    tree=st.sampled_from(["off", "siblings:2", "siblings:8", "on"]),
)
def test_any_schedule_ends_with_the_known_ids(
    seed: int, kind: str, length: int | str, tokens: int, cuts: int, tree: str
) -> None:
    truth = make_truth(seed, tokens)
    controller = make_controller(length)
    cloud = FakeCloud(truth, VOCAB, random.Random(seed), max_draft=8)
    session = make_session(controller, tree_shape(tree))
    world = World(session, cloud, make_drafter(kind, truth), random.Random(seed + 1))
    world.cuts = cuts
    events = world.run(PROMPT, TurnRequest(max_tokens=tokens))
    assert session.ids == truth
    position = len(PROMPT)
    for event in events:
        if isinstance(event, Committed):
            assert event.start == position
            position += len(event.tokens)
    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.LENGTH
    assert cloud.largest_unverified <= min(controller.cap, 8)
    if length == 0:
        assert not any(draft.nodes for draft in cloud.drafts)


def test_perfect_drafts_save_steps() -> None:
    truth = make_truth(5, 200)
    cloud = FakeCloud(truth, VOCAB)
    world = World(make_session(FixedController(8)), cloud, OracleDrafter(truth), random.Random(5))
    last = world.run(PROMPT, TurnRequest(max_tokens=200))[-1]
    assert isinstance(last, Finished)
    assert last.totals.verify_steps < 130
    assert last.totals.accepted_tokens > 70


def test_a_next_turn_sends_only_what_is_new() -> None:
    truth = make_truth(2, 100)
    cloud = FakeCloud(truth, VOCAB)
    world = World(make_session(), cloud, OracleDrafter(truth, 0.7), random.Random(2))
    world.run(PROMPT, TurnRequest(max_tokens=10))
    world.run(truth[:20], TurnRequest(max_tokens=10))
    assert cloud.appended == [PROMPT, truth[15:20]]
    assert [c.length for c in cloud.opens[1].keep] == [5, 15]
    assert world.session.ids == truth[:30]


def test_an_edited_history_is_kept_up_to_the_edit() -> None:
    truth = make_truth(3, 100)
    cloud = FakeCloud(truth, VOCAB)
    world = World(make_session(), cloud, QuietDrafter(), random.Random(3))
    world.run(PROMPT, TurnRequest(max_tokens=10))
    edited = [*truth[:8], (truth[8] + 1) % VOCAB, 7]
    world.run(edited, TurnRequest(max_tokens=3))
    assert cloud.appended[1] == edited[8:]
    assert world.session.ids == edited + truth[10:13]


def test_a_server_that_forgot_is_told_everything_again() -> None:
    truth = make_truth(4, 100)
    cloud = FakeCloud(truth, VOCAB)
    world = World(make_session(), cloud, QuietDrafter(), random.Random(4))
    world.run(PROMPT, TurnRequest(max_tokens=10))
    cloud.forget = True
    events = world.run(truth[:20], TurnRequest(max_tokens=5))
    assert isinstance(events[0], Reopened)
    assert cloud.appended[1] == truth[:20]
    assert world.session.ids == truth[:25]


def test_one_digest_fault_costs_a_resync_and_no_token() -> None:
    truth = make_truth(6, 30)
    cloud = FakeCloud(truth, VOCAB, corrupt=1)
    world = World(make_session(), cloud, OracleDrafter(truth, 0.7), random.Random(6))
    events = world.run(PROMPT, TurnRequest(max_tokens=30))
    assert sum(isinstance(event, Reopened) for event in events) == 1
    assert world.session.ids == truth
    assert world.session.reopened == 1


def test_a_second_digest_fault_ends_the_session() -> None:
    truth = make_truth(7, 30)
    world = World(make_session(), FakeCloud(truth, VOCAB, corrupt=99), QuietDrafter(), random.Random(7))
    with pytest.raises(Desync, match="length"):
        world.run(PROMPT, TurnRequest(max_tokens=30))


def test_cancel_is_answered_by_a_final_commit() -> None:
    truth = make_truth(8, 100)
    cloud = FakeCloud(truth, VOCAB)
    session = make_session()
    session.start_turn(0.0, PROMPT, TurnRequest(max_tokens=90))
    exchange(session, cloud, 0.0)
    cloud.step()
    session.cancel()
    events = exchange(session, cloud, 1.0)
    assert isinstance(events[-1], Finished)
    assert events[-1].reason is FinishReason.CANCELLED
    assert not session.running
    session.cancel()
    assert session.poll(2.0) is None


def test_abandoned_turns_stay_silent_and_the_next_one_runs() -> None:
    truth = make_truth(9, 60)
    cloud = FakeCloud(truth, VOCAB)
    world = World(make_session(), cloud, QuietDrafter(), random.Random(9))
    world.session.start_turn(0.0, PROMPT, TurnRequest(max_tokens=50))
    exchange(world.session, cloud, 0.0)
    world.session.abandon()
    cloud.step()
    assert world.session.receive(1.0, cloud.commit() or b"") == []
    world.run(PROMPT, TurnRequest(max_tokens=20, seed=1))
    assert world.session.ids == truth[:25]
