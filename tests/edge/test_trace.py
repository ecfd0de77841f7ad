"""Trace files: what is written comes back, what is broken is said, and a full disk harms nobody."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.edge import watch
from acespec.edge.brain.prices import Prices
from acespec.edge.tracing.trace_json import KINDS, happening_of, line_of
from acespec.edge.tracing.trace_reader import read_trace
from acespec.edge.tracing.trace_writer import FORMAT, TraceWriter
from acespec.proto.errors import UsageError
from acespec.proto.messages import Totals

COMMIT = watch.CommitSeen(
    bytes=20,
    ip_bytes=99,
    length=12,
    tokens=(4, 5, 6),
    named=2,
    ack=3,
    rtt_ms=101.25,
    prices=Prices(cycle=0.1, waits=True),
    finish="length",
    totals=Totals(verify_steps=2, accepted_tokens=1),
)
DRAFTED = watch.Drafted(4, 0.01, 2, "kept", guesses=(watch.GuessSeen(12, 7, "lm", 0.9, key=3),))


def is_finite(value: object) -> bool:
    """No number in `value`, or in what it is made of, is infinite or none."""
    if isinstance(value, float):
        return math.isfinite(value)
    if is_dataclass(value):
        return all(is_finite(getattr(value, field.name)) for field in dataclass_fields(value))
    return all(map(is_finite, value)) if isinstance(value, tuple) else True


@given(st.one_of([st.from_type(record) for record in KINDS.values()]).filter(is_finite), st.integers(0, 3))
def test_every_record_comes_back_as_it_was_written(happening: watch.Happening, session: int) -> None:
    line = line_of(1.5, session, happening)
    fields = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    again = happening_of(fields["kind"], fields)
    assert again is not None
    assert type(again) is type(happening)
    assert line_of(1.5, session, again) == line


@given(st.floats())
def test_what_is_no_number_is_left_out_and_infinity_is_large(figure: float) -> None:
    line = line_of(1.5, 0, replace(COMMIT, verify_ms=figure))
    fields = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    written = fields.get("verify_ms", 0.0)
    if math.isinf(figure):
        assert math.copysign(1.0, written) == math.copysign(1.0, figure)
        assert abs(written) > 1e200
    else:
        assert written == pytest.approx(0.0 if math.isnan(figure) else figure, rel=1e-3, abs=1e-2)


@pytest.mark.parametrize("happening", [COMMIT, DRAFTED, watch.Outage("gone"), watch.Abandoned()])
def test_plain_values_come_back_exactly_and_defaults_take_no_room(happening: watch.Happening) -> None:
    line = line_of(0.0, 0, happening)
    fields = json.loads(line)
    assert happening_of(fields["kind"], fields) == happening
    assert "surprises" not in fields
    assert "session" not in fields


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def test_a_file_has_a_header_and_times_from_its_beginning(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "run.jsonl"
    with TraceWriter(path, {"model": "m", "options": {"draft_tree": "on"}}, tls=True, clock=clock) as writer:
        first, second = writer.session(), writer.session()
        clock.now += 0.25
        first.saw(COMMIT)
        second.saw(watch.Outage("gone"))
        assert path.read_text().count("\n") == 3, "a line is there at once"
    trace, other = read_trace(path), read_trace(path, 1)
    assert (trace.header["model"], trace.header["format"], trace.tls, trace.sessions) == ("m", FORMAT, True, 2)
    assert [(m.t, m.happening) for m in trace.moments] == [(0.25, COMMIT)]
    assert [m.happening for m in other.moments] == [watch.Outage("gone")]
    first.saw(COMMIT)
    assert len(read_trace(path).moments) == 1, "what comes after the end is dropped"


def test_a_place_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--trace .*missing"):
        TraceWriter(tmp_path / "missing" / "run.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_ends_the_trace_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), TraceWriter(Path("/dev/full")) as writer:
        watcher = writer.session()
        for _ in range(3):
            watcher.saw(COMMIT)
    assert [record.getMessage() for record in caplog.records] == [
        "the trace /dev/full ends here: No space left on device"
    ]


def written(path: Path, *lines: str) -> Path:
    head = json.dumps({"kind": "trace", "format": FORMAT}) + "\n"
    path.write_text(head + "".join(lines))
    return path


def test_a_line_that_was_cut_off_and_kinds_to_come_are_left_out(tmp_path: Path) -> None:
    whole = line_of(1.0, 0, COMMIT)
    path = written(
        tmp_path / "t", whole, '{"t":2,"kind":"thought","x":1}\n', whole[:-1].replace("}", ',"new":1}'), "\n"
    )
    assert len(read_trace(path).moments) == 2
    path.write_text(path.read_text() + whole[: len(whole) // 2])
    assert len(read_trace(path).moments) == 2


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("nonsense\n", "line 2: it is no JSON object"),
        ('{"kind":"outage","reason":"x"}\n', "lacks a time"),
        ('{"t":1,"kind":"outage"}\n', "reason"),
        ('{"t":1,"kind":"outage","reason":7}\n', "reason is 7"),
        ('{"t":1,"kind":"commit","bytes":1,"ip_bytes":1,"length":1,"tokens":["a"]}\n', "tokens"),
        ('{"t":1,"kind":"commit","bytes":1,"ip_bytes":1,"length":1,"prices":{"cycle":"a"}}\n', "cycle"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        read_trace(written(tmp_path / "t", line))


@pytest.mark.parametrize("text", ["", "{}\n", "[]\n", "hello\n", '{"kind":"commit","t":1}\n'])
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no trace"):
        read_trace(path)


def test_unreadable_newer_and_missing_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_trace(tmp_path / "nowhere")
    path = tmp_path / "t"
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(UsageError, match="UTF-8"):
        read_trace(path)
    path.write_text(json.dumps({"kind": "trace", "format": FORMAT + 1}) + "\n")
    with pytest.raises(UsageError, match="update acespec"):
        read_trace(path)
    with pytest.raises(UsageError, match="--session"):
        read_trace(written(path, line_of(0, 0, COMMIT)), 1)
