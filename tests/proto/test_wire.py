"""Messages to bytes and back, whatever they hold."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.proto import verifier_pb2 as pb
from acespec.proto import wire
from acespec.proto.errors import BadFrame
from acespec.proto.messages import (
    Checkpoint,
    Commit,
    Draft,
    FinishReason,
    Open,
    OutputFormat,
    Totals,
    Unserved,
)
from acespec.proto.sampling_params import SamplingParams

U32 = st.integers(0, 2**32 - 1)
SINGLE = st.floats(-100, 100, width=32)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
PARAMS = st.builds(
    SamplingParams,
    temperature=st.floats(0, 100, width=32),
    top_k=U32,
    top_p=st.floats(0, 1, width=32),
    min_p=st.floats(0, 1, width=32),
    repetition_penalty=st.floats(0.125, 8, width=32),
    frequency_penalty=SINGLE,
    presence_penalty=SINGLE,
    logit_bias=st.lists(st.tuples(U32, SINGLE), max_size=3).map(tuple),
)
OPENS = st.builds(
    Open,
    session_id=st.binary(min_size=16, max_size=16),
    epoch=U32,
    fingerprint=st.binary(max_size=16),
    prompt_len=U32,
    seed=st.integers(0, 2**64 - 1),
    max_tokens=U32,
    params=PARAMS,
    append=st.binary(max_size=20),
    keep=st.lists(st.builds(Checkpoint, U32, st.binary(min_size=16, max_size=16)), max_size=3).map(tuple),
    model=TEXT,
    version=U32,
    min_tokens=U32,
    stop_ids=st.lists(U32, max_size=3).map(tuple),
    stop_strings=st.lists(TEXT, max_size=3).map(tuple),
    target_rate=st.none() | st.floats(0, 1000, width=32),
    codec=st.integers(1, 9),
    ignore_eos=st.booleans(),
    top_logprobs=st.none() | st.integers(0, 20),
    format=st.builds(OutputFormat, TEXT, st.booleans(), TEXT, TEXT),
    extra=st.builds(Unserved, st.integers(1, 9), st.integers(1, 9), st.booleans(), TEXT),
)
COMMITS = st.builds(
    Commit,
    length=U32,
    digest=U32,
    tokens=st.binary(max_size=20),
    matched=st.none() | U32,
    ack=U32,
    held_us=U32,
    verify_us=U32,
    load=U32,
    next_in_ms=U32,
    finish=st.none() | st.sampled_from(FinishReason),
    text_end=st.none() | U32,
    totals=st.none() | st.builds(Totals, *[U32] * 7),
    logprobs=st.binary(max_size=40),
)


@given(message=OPENS)
def test_an_open_arrives_as_it_was_sent(message: Open) -> None:
    assert wire.decode_edge(wire.encode_edge(message)) == message


@given(message=COMMITS)
def test_a_commit_arrives_as_it_was_sent(message: Commit) -> None:
    assert wire.decode_cloud(wire.encode_cloud(message)) == message


@given(message=st.builds(Draft, U32, st.binary(max_size=20), st.none() | U32, st.booleans(), st.none() | U32))
def test_a_draft_arrives_as_it_was_sent(message: Draft) -> None:
    assert wire.decode_edge(wire.encode_edge(message)) == message


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_bad_frame(data: bytes) -> None:
    for decode in (wire.decode_edge, wire.decode_cloud, wire.decode_card):
        with contextlib.suppress(BadFrame):
            decode(data)


def test_what_is_not_asked_for_costs_no_byte() -> None:
    bare = Open(bytes(16), 1, bytes(16), 3, 1, 5)
    assert len(wire.encode_edge(bare)) <= 60
    assert len(wire.encode_cloud(Commit(5, 1, b"ab"))) == 13


def test_alternatives_without_log_probabilities_make_no_sense() -> None:
    frame = pb.EdgeFrame(open=pb.Open(session_id=bytes(16), sampling=pb.Sampling(top_logprobs=3)))
    with pytest.raises(BadFrame, match="top_logprobs without logprobs"):
        wire.decode_edge(frame.SerializeToString())
