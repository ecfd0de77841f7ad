"""Which drafts leave and when: prices, headway, due times, and nodes beside the main path."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.brain.controller import Controller, FixedController
from acespec.edge.brain.draft_desk import DraftDesk, DraftJob
from acespec.edge.brain.prices import Prices
from acespec.edge.brain.rate_controller import RateController
from acespec.edge.brain.shipping import MARGIN_S, Shipping
from acespec.edge.brain.tree_shape import TREE, TreeShape
from acespec.edge.drafters.base import Candidate
from acespec.edge.session import EdgeSession
from acespec.edge.turn_request import CODEC, TurnRequest
from acespec.proto import wire
from acespec.proto.messages import Draft, Opened
from acespec.proto.nodes import ROOT, Node, unpack
from tests.edge.test_session_rules import commit_of
from tests.edge.world import PROMPT, VOCAB


def opened(controller: Controller, shape: TreeShape = TREE, *, now: float = 0.0, max_nodes: int = 64) -> EdgeSession:
    session = EdgeSession(fingerprint=bytes(16), vocab_size=VOCAB, controller=controller, shape=shape)
    session.start_turn(now, PROMPT, TurnRequest(max_tokens=500))
    session.poll(now)
    session.receive(now, wire.encode_cloud(Opened(1, 0, "n", 20.0, 16, max_nodes, exact=True)))
    return session


def level(*tokens: int, first: float = 0.8) -> list[Candidate]:
    return [Candidate(t, first if n == 0 else (1 - first) / 2**n, "lm") for n, t in enumerate(tokens)]


def draft(session: EdgeSession, *levels: list[Candidate]) -> DraftJob:
    job = session.draft_job()
    assert job is not None
    session.drafted(job, levels, seconds=0.001, silent=False)
    return job


def sent(session: EdgeSession, now: float) -> Draft | None:
    data = session.poll(now)
    message = None if data is None else wire.decode_edge(data)
    assert message is None or isinstance(message, Draft)
    return message


def nodes_of(message: Draft | None, first_id: int = 0) -> list[Node]:
    assert message is not None
    return unpack(message.nodes, first_id, VOCAB, 64, CODEC) if message.nodes else []


def test_siblings_go_out_with_the_path_the_likeliest_first() -> None:
    session = opened(FixedController(4), TreeShape(2))
    draft(session, level(7, 5), level(8, 6))
    assert nodes_of(sent(session, 0.0)) == [Node(ROOT, 7), Node(0, 8), Node(ROOT, 5), Node(0, 6)]


def test_a_correction_among_the_siblings_costs_no_redraft_of_what_follows_it() -> None:
    session = opened(FixedController(3), TREE)
    draft(session, level(7, 5), level(8), level(9))
    job = draft(session, level(4), level(3))
    assert job.path == [*PROMPT, 5], "with the main path done, the next likeliest is the sibling"
    session.receive(1.0, commit_of(PROMPT, [5]))
    assert session.path() == [*PROMPT, 5, 4, 3]
    assert (session.branch_cache.surprises, session.branch_cache.covered, session.branch_cache.saved) == (1, 1, 2)


def test_a_commit_may_name_a_shipped_sibling_and_the_cloud_goes_on_behind_it() -> None:
    session = opened(FixedController(2), TREE)
    draft(session, level(7, 5), level(8))
    draft(session, level(4))
    shipped = nodes_of(sent(session, 0.0))
    side = next(i for i, node in enumerate(shipped) if node.token == 5)
    behind = next(i for i, node in enumerate(shipped) if node == Node(side, 4))
    session.receive(1.0, commit_of([*PROMPT, 5, 4], [2], matched=behind))
    assert session.ids == [*PROMPT, 5, 4, 2]
    assert session.branch_cache.shipped == 1


def test_a_job_names_the_likeliest_place() -> None:
    session = opened(FixedController(8), TREE)
    assert (first := session.draft_job()) is not None
    assert (first.path, first.k) == (PROMPT, 4)
    draft(session, level(7, 5, first=0.6))
    assert (second := session.draft_job()) is not None
    assert second.path == [*PROMPT, 7]


def test_what_the_cloud_will_have_passed_does_not_leave() -> None:
    desk = DraftDesk(FixedController(8), VOCAB)
    desk.start(5, 100, ())
    shipping = Shipping(desk, VOCAB)
    job = desk.job(PROMPT)
    assert job is not None
    desk.take(PROMPT, job, [level(7), level(8)], 0.001, False)
    desk.prices = Prices(headway=2)
    assert not shipping.waiting()
    assert shipping.load(9) == b""
    desk.prices = Prices(headway=1)
    assert shipping.waiting()
    assert len(unpack(shipping.load(9), 0, VOCAB, 9, CODEC)) == 2, "what leads to a useful node goes along"


def test_nodes_that_do_not_pay_stay_and_may_go_later() -> None:
    desk = DraftDesk(controller := RateController(), VOCAB, TREE)
    for tick in range(60):
        controller.committed(tick * 0.025, 2, [])
    desk.start(5, 100, ())
    shipping = Shipping(desk, VOCAB)
    job = desk.job(PROMPT)
    assert job is not None
    desk.take(PROMPT, job, [level(7, 5, 4)], 0.001, False)
    desk.prices = Prices(link_rate=300.0)
    assert [node.token for node in unpack(shipping.load(9), 0, VOCAB, 9, CODEC)] == [7]
    desk.prices = Prices(link_rate=30_000.0)
    assert [node.token for node in unpack(shipping.load(9), 1, VOCAB, 9, CODEC)] == [5, 4]


def test_before_a_due_time_drafts_leave_as_late_as_they_safely_can() -> None:
    session = opened(RateController(), TREE)
    draft(session, level(7))
    assert nodes_of(sent(session, 0.0))
    session.receive(0.1, commit_of(PROMPT, [7], ack=1, next_in_ms=1000))
    draft(session, level(8), level(9))
    assert sent(session, 0.11) is None, "the draft can still grow"
    wake = session.wake_at()
    assert wake is not None
    assert 1.1 - 0.1 - MARGIN_S - 0.1 < wake < 1.1 - 0.1 - MARGIN_S, "a round trip, the bytes and a margin before"
    assert [node.token for node in nodes_of(sent(session, wake), 1)] == [8, 9]
    assert (session.wake_at() or 0.0) > wake, "a time that is over wakes nobody"


def test_a_draft_that_cannot_grow_does_not_wait_for_the_due_time() -> None:
    session = opened(FixedController(2), TreeShape(1))
    draft(session, level(7))
    sent(session, 0.0)
    session.receive(0.1, commit_of(PROMPT, [7], ack=1, next_in_ms=1000))
    draft(session, level(8), level(9))
    assert [node.token for node in nodes_of(sent(session, 0.11), 1)] == [8, 9]


def test_drafts_that_are_not_worth_a_message_ride_on_an_acknowledgement() -> None:
    session = opened(RateController(), TREE)
    ids = list(PROMPT)
    for tick in range(1, 60):
        session.receive(0.025 * tick, commit_of(ids, [9], ack=min(tick, 1)))
        ids.append(9)
        session.poll(0.025 * tick)
    session._market._link_rate = 1000.0
    draft(session, level(7, first=0.3))
    now = 0.025 * 59 + 0.001
    assert session.poll(now) is None
    session.receive(now, commit_of(ids, [7, 9], ack=1))
    draft(session, level(7, first=0.3))
    wake = session.wake_at()
    assert wake is not None
    assert sent(session, max(now, wake)) is not None


@given(st.integers(1, 24), st.lists(st.integers(0, 5), max_size=60))
def test_the_tree_never_grows_beyond_what_the_server_holds(most: int, tokens: list[int]) -> None:
    session = opened(FixedController(8), TREE, max_nodes=most)
    for at, token in enumerate(tokens):
        if (job := session.draft_job()) is None:
            break
        session.drafted(job, [level(token, token + 7, token + 14)], seconds=0.001, silent=at % 3 == 0)
        assert session.nodes <= most
        session.poll(0.01 * at)


def test_drafting_goes_on_behind_a_sibling_that_was_right() -> None:
    session = opened(FixedController(4), TreeShape(2))
    draft(session, level(7, 5), level(8, 6), level(9), level(4))
    assert session.draft_job() is None
    session.receive(1.0, commit_of(PROMPT, [7, 6]))
    job = session.draft_job()
    assert job is not None
    assert job.path == [*PROMPT, 7, 6]
