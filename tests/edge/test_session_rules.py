"""The rules of the protocol, one by one, as the edge keeps them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.edge.brain.controller import Controller, FixedController
from acespec.edge.drafters.base import Candidate
from acespec.edge.events import Committed, Reopened, TurnOpened
from acespec.edge.session import EdgeSession
from acespec.edge.turn_request import CODEC, TurnRequest, as_sent
from acespec.proto import wire
from acespec.proto.digest import PrefixDigest, short
from acespec.proto.errors import BadFrame, Desync
from acespec.proto.logprobs import TokenLogprobs
from acespec.proto.logprobs import pack as pack_logprobs
from acespec.proto.messages import Commit, Draft, Open, Opened, OutputFormat
from acespec.proto.nodes import unpack
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.tokens import pack_tokens
from tests.edge.world import PROMPT, VOCAB, make_session


def opened_session(controller: Controller | None = None, rate: float = 20.0, max_tokens: int = 50) -> EdgeSession:
    session = make_session(controller)
    session.start_turn(0.0, PROMPT, TurnRequest(max_tokens=max_tokens))
    assert isinstance(wire.decode_edge(session.poll(0.0) or b""), Open)
    answer = Opened(1, 0, "n", rate, 16, 64, exact=True)
    assert session.receive(0.0, wire.encode_cloud(answer)) == [TurnOpened(answer)]
    return session


def commit_of(ids: list[int], new: list[int], **fields: object) -> bytes:
    whole = ids + new
    digest = short(PrefixDigest(whole).at(len(whole)))
    return wire.encode_cloud(Commit(len(whole), digest, pack_tokens(new, VOCAB), **fields))  # type: ignore[arg-type]


def draft_of(session: EdgeSession, now: float) -> Draft | None:
    data = session.poll(now)
    if data is None:
        return None
    message = wire.decode_edge(data)
    assert isinstance(message, Draft)
    return message


def test_acknowledgements_come_about_once_a_round_trip() -> None:
    session = opened_session(FixedController(0))
    ids = list(PROMPT)
    sent = 0
    for tick in range(1, 41):
        now = tick * 0.025
        session.receive(now, commit_of(ids, [9]))
        ids.append(9)
        draft = draft_of(session, now)
        if draft is not None:
            sent += 1
            assert draft.received == len(ids)
            assert not draft.nodes
            assert draft.held_ms is not None
    assert 8 <= sent <= 11


def test_an_acknowledgement_waits_for_its_time_and_says_how_long() -> None:
    session = opened_session(FixedController(0))
    session.receive(1.0, commit_of(PROMPT, [9]))
    assert draft_of(session, 1.0) is not None
    session.receive(1.03, commit_of([*PROMPT, 9], [8]))
    assert draft_of(session, 1.05) is None
    assert session.wake_at() == pytest.approx(1.1)
    draft = draft_of(session, 1.1)
    assert draft is not None
    assert draft.held_ms == 70


def test_a_silent_cloud_is_asked_for_a_step_ever_more_rarely() -> None:
    session = opened_session(FixedController(0))
    asked = []
    for tick in range(2000):
        draft = draft_of(session, tick * 0.01)
        if draft is not None:
            assert draft.step
            asked.append(tick * 0.01)
    assert asked[0] == pytest.approx(0.5)
    assert len(asked) < 9
    assert asked[-1] - asked[-2] > 3 * (asked[1] - asked[0])


def test_without_drafts_a_session_that_is_never_due_asks_for_each_step() -> None:
    session = opened_session(FixedController(0), rate=0.0)
    session.receive(1.0, commit_of(PROMPT, [9]))
    draft = draft_of(session, 1.0)
    assert draft is not None
    assert draft.step


def test_round_trips_exclude_the_time_that_the_cloud_held_the_draft() -> None:
    session = opened_session(FixedController(0))
    session.receive(1.0, commit_of(PROMPT, [9]))
    draft_of(session, 1.0)
    session.receive(1.25, commit_of([*PROMPT, 9], [8], ack=1, held_us=150_000))
    assert list(session.rtts) == [pytest.approx(0.1)]


def test_drafts_gather_while_the_link_is_busy() -> None:
    session = opened_session(FixedController(16), max_tokens=500)
    messages = []
    for i in range(16):
        job = session.draft_job()
        assert job is not None
        session.drafted(job, [[Candidate(i, 0.9, "lm")]], seconds=0.001, silent=False)
        messages.append(draft_of(session, 0.001 * i))
    assert messages[0] is not None
    assert sum(m is not None for m in messages) < 10


def test_guesses_that_were_committed_meanwhile_are_fitted_in() -> None:
    session = opened_session(FixedController(4))
    job = session.draft_job()
    assert job is not None
    session.receive(1.0, commit_of(PROMPT, [9, 8]))
    session.drafted(job, [[Candidate(t, 0.9, "lm")] for t in (9, 8, 7, 6)], seconds=0.001, silent=False)
    assert session.path() == [*PROMPT, 9, 8, 7, 6]


def test_guesses_that_were_contradicted_meanwhile_are_dropped() -> None:
    session = opened_session(FixedController(4))
    job = session.draft_job()
    assert job is not None
    session.receive(1.0, commit_of(PROMPT, [9, 8]))
    session.drafted(job, [[Candidate(t, 0.9, "lm")] for t in (9, 1, 7, 6)], seconds=0.001, silent=False)
    assert session.path() == [*PROMPT, 9, 8]


def test_an_answer_to_a_path_that_was_contradicted_is_dropped() -> None:
    session = opened_session(FixedController(4))
    first = session.draft_job()
    assert first is not None
    session.drafted(first, [[Candidate(9, 0.9, "lm")]], seconds=0.001, silent=False)
    second = session.draft_job()
    assert second is not None
    session.receive(1.0, commit_of(PROMPT, [8]))
    assert session.is_void(second)
    session.drafted(second, [[Candidate(7, 0.9, "lm")]], seconds=0.001, silent=False)
    assert session.path() == [*PROMPT, 8]


def test_a_turn_that_was_never_answered_is_sent_again_as_a_whole() -> None:
    session = make_session()
    first = session.start_turn(0.0, PROMPT, TurnRequest(max_tokens=5))
    again = session.reconnect(1.0)
    assert again.append == first.append != b""
    assert again.keep == first.keep == ()
    assert again.epoch == first.epoch + 1


def test_what_was_in_flight_on_a_dead_stream_holds_nothing_back_on_the_next() -> None:
    session = opened_session(FixedController(16), max_tokens=500)
    for i in range(12):
        job = session.draft_job()
        assert job is not None
        session.drafted(job, [[Candidate(i, 0.9, "lm")]], seconds=0.001, silent=False)
        draft_of(session, 0.001 * i)
    session.reconnect(0.1)
    session.poll(0.1)
    session.receive(0.1, wire.encode_cloud(Opened(2, len(PROMPT), "n", 20.0, 16, 64, exact=True)))
    draft = draft_of(session, 0.1)
    assert draft is not None
    assert len(unpack(draft.nodes, 0, VOCAB, 64, CODEC)) == 12


def test_nothing_is_drafted_behind_an_end() -> None:
    session = make_session(FixedController(8))
    session.start_turn(0.0, PROMPT, TurnRequest(max_tokens=50, end_ids=(2,)))
    job = session.draft_job()
    assert job is not None
    session.drafted(job, [[Candidate(2, 0.9, "lm")]], seconds=0.001, silent=False)
    assert not session.wants_draft()


def test_the_last_token_is_not_drafted() -> None:
    session = make_session(FixedController(8))
    session.start_turn(0.0, PROMPT, TurnRequest(max_tokens=3))
    job = session.draft_job()
    assert job is not None
    assert job.room == 2


def test_a_drafter_with_nothing_to_say_is_asked_again_after_the_next_commit() -> None:
    session = opened_session()
    job = session.draft_job()
    assert job is not None
    session.drafted(job, [], seconds=0.001, silent=True)
    assert not session.wants_draft()
    session.receive(1.0, commit_of(PROMPT, [9]))
    assert session.wants_draft()


def test_frames_of_an_older_epoch_are_ignored() -> None:
    session = opened_session()
    session.reconnect(1.0)
    assert session.receive(1.0, commit_of(PROMPT, [9])) == []
    old = Opened(1, 0, "n", 20.0, 16, 64, exact=True)
    assert session.receive(1.0, wire.encode_cloud(old)) == []
    assert session.ids == PROMPT


def test_a_commit_that_names_an_unknown_node_makes_the_edge_open_again() -> None:
    session = opened_session()
    assert [type(e) for e in session.receive(1.0, commit_of(PROMPT, [9], matched=3))] == [Reopened]
    reopened = wire.decode_edge(session.poll(1.0) or b"")
    assert isinstance(reopened, Open)
    assert reopened.epoch == 2
    assert reopened.append == b""
    assert [c.length for c in reopened.keep] == [len(PROMPT)]


def test_a_commit_beyond_the_limit_is_a_fault() -> None:
    session = opened_session(max_tokens=2)
    assert [type(e) for e in session.receive(1.0, commit_of(PROMPT, [9, 9, 9]))] == [Reopened]


def test_a_length_that_was_not_asked_about_is_refused() -> None:
    session = make_session()
    session.start_turn(0.0, PROMPT, TurnRequest(max_tokens=5))
    with pytest.raises(BadFrame, match="kept 3"):
        session.receive(0.0, wire.encode_cloud(Opened(1, 3, "n", 20.0, 16, 64, exact=True)))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_from_the_cloud_give_events_or_a_documented_error(data: bytes) -> None:
    session = opened_session()
    try:
        session.receive(1.0, data)
    except (BadFrame, Desync):
        return


def test_parameters_are_used_as_they_arrive() -> None:
    params = as_sent(SamplingParams(temperature=0.7, top_p=0.9, min_p=0.1, logit_bias=((3, 0.3),)))
    session = make_session()
    session.start_turn(0.0, PROMPT, TurnRequest(params=params))
    message = wire.decode_edge(session.poll(0.0) or b"")
    assert isinstance(message, Open)
    assert message.params == params
    assert params.temperature != 0.7


def asking_session(request: TurnRequest) -> tuple[EdgeSession, Open]:
    session = make_session(FixedController(0))
    session.start_turn(0.0, PROMPT, request)
    message = wire.decode_edge(session.poll(0.0) or b"")
    assert isinstance(message, Open)
    session.receive(0.0, wire.encode_cloud(Opened(1, 0, "n", 20.0, 16, 64, exact=True)))
    return session, message


def test_an_open_carries_all_that_was_asked_for() -> None:
    request = TurnRequest(
        max_tokens=9, min_tokens=3, ignore_eos=True, top_logprobs=2, format=OutputFormat(json_object=True)
    )
    _, message = asking_session(request)
    assert (message.min_tokens, message.ignore_eos, message.top_logprobs) == (3, True, 2)
    assert message.format == OutputFormat(json_object=True)


ITEM = TokenLogprobs(-1.0, ((4, -0.5), (9, -1.0)))


def test_log_probabilities_come_with_their_tokens() -> None:
    session, _ = asking_session(TurnRequest(max_tokens=9, top_logprobs=2))
    (event,) = session.receive(1.0, commit_of(PROMPT, [9, 4], logprobs=pack_logprobs([ITEM, ITEM])))
    assert event == Committed(5, (9, 4), (ITEM, ITEM))


@pytest.mark.parametrize(
    ("top", "data"),
    [
        (2, b""),
        (2, pack_logprobs([ITEM])),
        (2, pack_logprobs([ITEM] * 3)),
        (2, pack_logprobs([ITEM] * 2)[:-1]),
        (1, pack_logprobs([ITEM] * 2)),
        (0, pack_logprobs([ITEM] * 2)),
        (None, pack_logprobs([ITEM] * 2)),
        (2, pack_logprobs([TokenLogprobs(-1.0, ((VOCAB, -1.0),))] * 2)),
    ],
)
def test_log_probabilities_that_do_not_fit_are_a_bad_frame(top: int | None, data: bytes) -> None:
    session, _ = asking_session(TurnRequest(max_tokens=9, top_logprobs=top))
    with pytest.raises(BadFrame):
        session.receive(1.0, commit_of(PROMPT, [9, 4], logprobs=data))
