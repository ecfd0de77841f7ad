"""The cloud's wire state machine, without transport or model."""

from __future__ import annotations

import dataclasses

import pytest

from acespec.cloud.backend import Committed, Offer
from acespec.cloud.session import ACK_AFTER_S, Abandon, Begin, Resume, Session, Stop
from acespec.proto import digest, nodes, prompt
from acespec.proto.errors import BadFrame, InvalidRequest, Mismatch, Superseded
from acespec.proto.golomb import Codec
from acespec.proto.logprobs import TokenLogprobs
from acespec.proto.logprobs import unpack as unpack_logprobs
from acespec.proto.messages import (
    Cancel,
    Checkpoint,
    Commit,
    Draft,
    FinishReason,
    Open,
    Opened,
    OutputFormat,
    Ping,
    Pong,
    Totals,
    Unserved,
)
from acespec.proto.nodes import ROOT, Node
from acespec.proto.tokens import unpack_tokens
from tests.cloud.toy import ToyRunner
from tests.cloud.toy_server import FINGERPRINT, toy_admission, toy_card

VOCAB = 64
PROMPT = [3, 1, 4, 1, 5]
KEY = ("anonymous", b"s" * 16)


def fresh() -> Session:
    return Session(KEY, toy_admission(toy_card(ToyRunner(VOCAB))), lambda message: 20)


def open_frame(epoch: int = 0, ids: list[int] | None = None, **changes: object) -> Open:
    ids = PROMPT if ids is None else ids
    base = Open(
        session_id=KEY[1],
        epoch=epoch,
        fingerprint=FINGERPRINT,
        prompt_len=len(ids),
        seed=7,
        max_tokens=50,
        append=prompt.pack_ids(ids, VOCAB) if ids else b"",
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def checkpoint(tokens: list[int]) -> Checkpoint:
    return Checkpoint(len(tokens), digest.extend(digest.EMPTY, tokens))


def opened(session: Session, frame: Open) -> Opened:
    session.receive(0.0, frame)
    answer = session.poll(0.0)
    assert isinstance(answer, Opened)
    return answer


def next_commit(session: Session, now: float = 0.0) -> Commit:
    message = session.poll(now)
    assert isinstance(message, Commit)
    return message


def test_a_turn_begins_with_the_appended_ids() -> None:
    session = fresh()
    (begin,) = session.receive(0.0, open_frame())
    assert isinstance(begin, Begin)
    assert begin.spec.tokens == tuple(PROMPT)
    assert begin.spec.seed == 7
    answer = session.poll(0.0)
    assert isinstance(answer, Opened)
    assert (answer.epoch, answer.kept, answer.resumed) == (0, 0, False)


@pytest.mark.parametrize("codec", Codec)
def test_drafts_are_read_as_the_open_says(codec: Codec) -> None:
    session = fresh()
    opened(session, open_frame(codec=int(codec)))
    chain = [Node(ROOT, 9), Node(0, 8), Node(1, 7)]
    (offer,) = session.receive(1.0, Draft(received=5, nodes=nodes.pack(chain, 0, VOCAB, codec)))
    assert offer == Offer(0, 0, tuple(chain), 5, 5, False)
    other = next(c for c in Codec if c != codec)
    with pytest.raises(BadFrame):
        session.receive(1.0, Draft(received=5, nodes=nodes.pack(chain, 3, VOCAB, other)))


def test_commits_name_the_matched_node_and_carry_only_the_rest() -> None:
    session = fresh()
    opened(session, open_frame())
    chain = [Node(ROOT, 9), Node(0, 8), Node(1, 7)]
    (offer,) = session.receive(1.0, Draft(received=5, nodes=nodes.pack(chain, 0, VOCAB)))
    assert offer == Offer(0, 0, tuple(chain), 5, 5, False)
    session.committed(Committed((9, 8, 30), epoch=0, matched=(1, 6)))
    commit = next_commit(session, 1.25)
    assert (commit.length, commit.matched, commit.ack, commit.held_us) == (8, 1, 1, 250_000)
    assert unpack_tokens(commit.tokens, 1, VOCAB) == [30]
    assert commit.digest == digest.short(digest.extend(digest.EMPTY, [*PROMPT, 9, 8, 30]))
    session.committed(Committed((31,), epoch=0, matched=(1, 6)))
    assert next_commit(session, 1.3).matched is None, "a node behind the last commit is not named again"


def test_gathered_commits_go_out_as_one() -> None:
    session = fresh()
    opened(session, open_frame())
    for token in (1, 2, 3):
        session.committed(Committed((token,), epoch=0))
    commit = next_commit(session)
    assert unpack_tokens(commit.tokens, 3, VOCAB) == [1, 2, 3]
    assert session.poll(0.0) is None


def test_the_pacer_gathers_while_much_is_in_flight() -> None:
    session = fresh()
    opened(session, open_frame())
    sent = 0
    for token in range(40):
        session.committed(Committed((token,), epoch=0))
        sent += session.poll(0.0) is not None
    assert 3 <= sent <= 12
    session.receive(0.2, Draft(received=5 + sent))
    commit = next_commit(session, 0.2)
    assert commit.length == 45, "all that was gathered goes out together"


def test_drafts_are_acknowledged_although_no_commit_comes() -> None:
    session = fresh()
    opened(session, open_frame())
    session.receive(1.0, Draft(received=5, nodes=nodes.pack([Node(ROOT, 1)], 0, VOCAB)))
    assert session.poll(1.0) is None
    assert session.wake_at() == pytest.approx(1.0 + ACK_AFTER_S)
    commit = next_commit(session, 1.0 + ACK_AFTER_S)
    assert (commit.ack, commit.length, commit.tokens) == (1, 5, b"")
    assert session.poll(9.0) is None


def test_the_final_commit_carries_reason_and_totals_even_if_nothing_is_new() -> None:
    session = fresh()
    opened(session, open_frame())
    assert session.receive(0.0, Cancel()) == [Stop()]
    session.committed(Committed((), 0, finish=FinishReason.CANCELLED, totals=Totals(verify_steps=3)))
    commit = next_commit(session)
    assert commit.finish is FinishReason.CANCELLED
    assert commit.totals == Totals(verify_steps=3)
    assert session.receive(0.0, Cancel()) == [], "a cancel of a finished turn does nothing"


def test_an_old_epoch_is_fenced() -> None:
    session = fresh()
    opened(session, open_frame(epoch=4))
    for epoch in (4, 3):
        with pytest.raises(Superseded, match="epoch"):
            session.receive(0.0, open_frame(epoch=epoch))


def test_a_next_turn_sends_only_what_is_new() -> None:
    session = fresh()
    opened(session, open_frame())
    session.committed(Committed((10, 11), 0, finish=FinishReason.LENGTH))
    next_commit(session)
    held = [*PROMPT, 10, 11]
    frame = open_frame(1, [20, 21], keep=(checkpoint(held),), prompt_len=9)
    (begin,) = session.receive(0.0, frame)
    assert isinstance(begin, Begin)
    assert begin.spec.tokens == (*held, 20, 21)


def test_an_edited_history_keeps_the_common_part() -> None:
    session = fresh()
    opened(session, open_frame())
    session.committed(Committed((10, 11), 0))
    frame = open_frame(1, [40], keep=(checkpoint(PROMPT[:3]), checkpoint(PROMPT)), prompt_len=6)
    abandon, begin = session.receive(0.0, frame)
    assert isinstance(abandon, Abandon)
    assert isinstance(begin, Begin)
    assert begin.spec.tokens == (*PROMPT, 40)


def test_a_checkpoint_that_is_not_held_is_answered_with_what_is() -> None:
    session = fresh()
    opened(session, open_frame())
    frame = open_frame(1, [9], keep=(checkpoint(PROMPT), checkpoint([*PROMPT, 63])), prompt_len=7)
    actions = session.receive(0.0, frame)
    assert actions == [Abandon()]
    answer = session.poll(0.0)
    assert isinstance(answer, Opened)
    assert answer.kept == 5
    assert fresh().receive(0.0, frame) == [], "a server that knows nothing keeps 0 and starts nothing"


def test_a_resume_re_sends_explicitly_what_the_edge_lacks() -> None:
    session = fresh()
    first = open_frame()
    opened(session, first)
    session.receive(0.0, Draft(received=5, nodes=nodes.pack([Node(ROOT, 10), Node(0, 11)], 0, VOCAB)))
    session.committed(Committed((10, 11, 12), 0, matched=(1, 6)))
    next_commit(session)
    session.disconnected()
    frame = dataclasses.replace(first, epoch=1, append=b"", keep=(checkpoint(PROMPT), checkpoint([*PROMPT, 10])))
    assert session.receive(0.0, frame) == [Resume(), Offer(0, 2, (), 6, 6)], "what it holds counts as acknowledged"
    answer = session.poll(0.0)
    assert isinstance(answer, Opened)
    assert (answer.kept, answer.resumed) == (6, True)
    session.committed(Committed((13,), 0, matched=(1, 6)))
    commit = next_commit(session)
    assert commit.matched is None, "an older epoch's nodes are never named"
    assert unpack_tokens(commit.tokens, 3, VOCAB) == [11, 12, 13]


def test_a_resumed_turn_may_pack_its_drafts_in_another_way() -> None:
    session = fresh()
    first = open_frame()
    opened(session, first)
    again = dataclasses.replace(
        first, epoch=1, append=b"", keep=(checkpoint(PROMPT),), codec=int(Codec.GOLOMB), target_rate=5.0
    )
    assert opened(session, again).resumed
    (offer,) = session.receive(1.0, Draft(received=5, nodes=nodes.pack([Node(ROOT, 9)], 0, VOCAB, Codec.GOLOMB)))
    assert isinstance(offer, Offer)
    assert offer.nodes == (Node(ROOT, 9),)


def test_a_resume_of_a_finished_turn_repeats_its_end() -> None:
    session = fresh()
    first = open_frame()
    opened(session, first)
    session.committed(Committed((10,), 0, finish=FinishReason.LENGTH, totals=Totals(1)))
    next_commit(session)
    frame = dataclasses.replace(first, epoch=1, append=b"", keep=(checkpoint(PROMPT),))
    session.receive(0.0, frame)
    session.poll(0.0)
    commit = next_commit(session)
    assert commit.finish is FinishReason.LENGTH
    assert commit.totals == Totals(1)
    assert unpack_tokens(commit.tokens, 1, VOCAB) == [10]


def test_another_seed_is_another_turn() -> None:
    session = fresh()
    opened(session, open_frame())
    session.committed(Committed((10,), 0))
    frame = dataclasses.replace(open_frame(1, []), keep=(checkpoint(PROMPT),), prompt_len=5, seed=8)
    actions = session.receive(0.0, frame)
    assert isinstance(actions[-1], Begin)
    assert actions[-1].spec.tokens == tuple(PROMPT)


@pytest.mark.parametrize(
    "changes",
    [
        {"min_tokens": 2},
        {"ignore_eos": True},
        {"top_logprobs": 0},
        {"stop_strings": ("x",)},
    ],
)
def test_what_changes_the_output_or_its_report_is_another_turn(changes: dict[str, object]) -> None:
    session = fresh()
    opened(session, open_frame())
    session.committed(Committed((10,), 0))
    frame = dataclasses.replace(open_frame(1, []), keep=(checkpoint(PROMPT),), prompt_len=5, **changes)  # type: ignore[arg-type]
    assert isinstance(session.receive(0.0, frame)[-1], Begin)


def chance(token: int) -> TokenLogprobs:
    return TokenLogprobs(-float(token), ((token, -float(token)),))


def chances(commit: Commit) -> list[TokenLogprobs]:
    return unpack_logprobs(commit.logprobs)


def test_log_probabilities_come_for_all_tokens_of_a_commit_the_matched_ones_too() -> None:
    session = fresh()
    opened(session, open_frame(top_logprobs=1))
    session.receive(1.0, Draft(received=5, nodes=nodes.pack([Node(ROOT, 9), Node(0, 8)], 0, VOCAB)))
    session.committed(Committed((9, 8), 0, matched=(1, 6), logprobs=(chance(9), chance(8))))
    session.committed(Committed((30,), 0, matched=(1, 6), logprobs=(chance(30),)))
    commit = next_commit(session, 1.2)
    assert commit.matched == 1
    assert chances(commit) == [chance(9), chance(8), chance(30)]
    session.committed(Committed((31,), 0, matched=(1, 6), logprobs=(chance(31),)))
    assert chances(next_commit(session, 1.3)) == [chance(31)]
    session.committed(Committed((), 0, finish=FinishReason.CANCELLED))
    assert next_commit(session, 1.4).logprobs == b""


def test_without_being_asked_for_they_cost_no_byte() -> None:
    session = fresh()
    opened(session, open_frame())
    session.committed(Committed((9,), 0))
    assert next_commit(session).logprobs == b""


def test_a_resume_repeats_the_log_probabilities_of_re_sent_tokens() -> None:
    session = fresh()
    first = open_frame(top_logprobs=1)
    opened(session, first)
    session.committed(Committed((10, 11, 12), 0, logprobs=(chance(10), chance(11), chance(12))))
    next_commit(session)
    session.disconnected()
    frame = dataclasses.replace(first, epoch=1, append=b"", keep=(checkpoint(PROMPT), checkpoint([*PROMPT, 10])))
    assert isinstance(session.receive(0.0, frame)[0], Resume)
    session.poll(0.0)
    session.committed(Committed((13,), 0, logprobs=(chance(13),)))
    assert chances(next_commit(session)) == [chance(11), chance(12), chance(13)]


def test_a_turn_that_moved_here_draws_again_what_it_cannot_report() -> None:
    session = fresh()
    frame = open_frame(ids=[*PROMPT, 10], prompt_len=5, top_logprobs=1)
    opened(session, frame)
    session.committed(Committed((11,), 0, logprobs=(chance(11),)))
    assert chances(next_commit(session)) == [chance(11)], "token 10 was drawn, and reported, elsewhere"
    again = dataclasses.replace(frame, epoch=1, append=b"", keep=(checkpoint(PROMPT),))
    begin = session.receive(0.0, again)[-1]
    assert isinstance(begin, Begin)
    assert begin.spec.tokens == tuple(PROMPT)


def test_ping_is_answered() -> None:
    session = fresh()
    opened(session, open_frame())
    session.receive(0.0, Ping())
    assert session.poll(0.0) == Pong()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"fingerprint": b"x" * 16}, Mismatch, f"{(b'x' * 16).hex()}.*{FINGERPRINT.hex()}"),
        ({"version": 99}, Mismatch, "version 99"),
        ({"model": "other"}, Mismatch, "'other'.*'toy'"),
        ({"extra": Unserved(best_of=2, suffix="x")}, InvalidRequest, "^best_of, suffix: not served"),
        ({"extra": Unserved(prompt_logprobs=True)}, InvalidRequest, "^prompt_logprobs: not served"),
        ({"extra": Unserved(n=2)}, InvalidRequest, "^n: .*open 2 sessions"),
        ({"format": OutputFormat(regex="a+")}, InvalidRequest, "^regex: not served"),
        ({"format": OutputFormat(regex="a+", json_object=True)}, InvalidRequest, "^json_object, regex: .*one"),
        ({"min_tokens": 51}, InvalidRequest, "min_tokens 51"),
        ({"top_logprobs": 21}, InvalidRequest, "top_logprobs 21.*20"),
        ({"codec": 9}, InvalidRequest, "codec 9"),
        ({"stop_ids": (64,)}, InvalidRequest, "stop_ids: token id 64"),
        ({"stop_strings": ("x" * 999,)}, InvalidRequest, "stop"),
        ({"max_tokens": 0}, InvalidRequest, "max_tokens"),
        ({"append": b""}, InvalidRequest, "empty"),
        ({"prompt_len": 6}, InvalidRequest, "prompt_len 6"),
        ({"prompt_len": 0}, InvalidRequest, "prompt_len 0"),
        ({"append": b"\x00\xff\xff\xff"}, BadFrame, "."),
    ],
)
def test_what_is_not_served_is_refused_by_name(changes: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        fresh().receive(0.0, open_frame(**changes))


def test_a_prompt_over_the_limit_is_refused() -> None:
    with pytest.raises((InvalidRequest, BadFrame), match="shorten the prompt"):
        fresh().receive(0.0, open_frame(ids=[1] * 600))


@pytest.mark.parametrize(
    "draft",
    [
        Draft(received=6),
        Draft(received=5, base=6, nodes=nodes.pack([Node(ROOT, 1)], 0, VOCAB)),
        Draft(received=5, nodes=b"\xff\xff"),
        Draft(received=5, nodes=nodes.pack([Node(ROOT, 1)] * 65, 0, VOCAB)),
        Draft(received=5, nodes=nodes.pack([Node(0, 1)], 1, VOCAB)),
    ],
)
def test_hostile_drafts_end_the_stream(draft: Draft) -> None:
    session = fresh()
    opened(session, open_frame())
    with pytest.raises(BadFrame):
        session.receive(0.0, draft)


def test_a_draft_before_open_is_refused() -> None:
    with pytest.raises(BadFrame, match="Open"):
        fresh().receive(0.0, Draft(received=0))
