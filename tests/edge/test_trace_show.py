"""`acespec trace show`: where a message is drawn, what is counted, and which options make sense."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from acespec.edge import watch
from acespec.edge.tracing.drawing import STYLES, Line, Rect, Shape, Text
from acespec.edge.tracing.timeline import timeline_of
from acespec.edge.tracing.timeline_drawing import LEFT, RIGHT, WIDTH, draw
from acespec.edge.tracing.trace_command import ShowOptions, show_command
from acespec.edge.tracing.trace_flights import flights_of
from acespec.edge.tracing.trace_json import line_of
from acespec.edge.tracing.trace_reader import Moment, Trace, read_trace
from acespec.edge.tracing.trace_summary import as_json, as_line, summary_of
from acespec.edge.tracing.trace_writer import FORMAT
from acespec.proto.errors import UsageError
from acespec.proto.framing import message_bytes
from acespec.proto.messages import Totals


def up(what: str, frame: int = 0, keys: tuple[int, ...] = (), epoch: int = 1) -> watch.Sent:
    return watch.Sent(what, 20, message_bytes(20), epoch, frame=frame, keys=keys)


def served(epoch: int = 1) -> watch.Served:
    return watch.Served(epoch, 10, message_bytes(10), 0, 20.0, 16, 64, "n")


def commit(length: int, tokens: int, **fields: object) -> watch.CommitSeen:
    given = {"bytes": 15, "ip_bytes": message_bytes(15), "length": length, "tokens": tuple(range(tokens))}
    return watch.CommitSeen(**given | fields)  # type: ignore[arg-type]


def guess(key: int, source: str = "lm", rank: int = 0) -> watch.GuessSeen:
    return watch.GuessSeen(10 + key, 1, source, 0.9, rank=rank, survival=0.8, key=key)


RUN: list[tuple[float, watch.Happening]] = [
    (0.0, watch.TurnStarted(10, 10, 50, 1, 0.0)),
    (0.0, watch.DecisionMade("extend", True, 0.5, "worth it")),
    (0.0, watch.JobGiven(1, -1, 10, 4, 2, 1.0)),
    (0.0, up("open")),
    (0.01, watch.Drafted(1, 0.01, 2, "kept", guesses=(guess(0), guess(1), guess(-1, rank=1)))),
    (0.1, served()),
    (0.1, up("draft", 1, (0, 1))),
    (0.11, up("draft", 2, ())),
    (0.25, commit(13, 3, named=2, guessed=2, ack=2, held_ms=40.0, rtt_ms=100.0, verify_ms=30.0)),
    (0.26, watch.DecisionMade("extend", False, -0.1, "drafting costs more than it earns")),
    (0.30, commit(14, 1, plain=True, guessed=1, surprises=1, covered=1)),
    (0.34, commit(15, 1, plain=True)),
    (0.40, watch.JobGiven(2, -1, 15, 4, 2, 1.0)),
    (0.43, watch.Drafted(2, 0.03, 1, "void")),
    (0.45, up("ack", 3)),
    (0.50, watch.Outage("the connection broke")),
    (0.60, watch.Outage("nobody there")),
    (0.90, up("open", epoch=2)),
    (1.00, served(2)),
    (
        1.20,
        commit(16, 1, plain=True, finish="length", totals=Totals(verify_steps=4, plain_steps=3, accepted_tokens=2)),
    ),
]
TRACE = Trace({"kind": "trace"}, tuple(Moment(t, happening) for t, happening in RUN))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    head = {"kind": "trace", "format": FORMAT, "model": "m<&>", "options": {"drafter": "ngram", "draft_tree": None}}
    file = tmp_path / "run.jsonl"
    file.write_text(json.dumps(head) + "\n" + "".join(line_of(t, 0, happening) for t, happening in RUN))
    return file


def test_messages_leave_and_arrive_where_the_round_trips_say() -> None:
    ways = {(f.up, round(f.sent, 3)): f for f in flights_of(TRACE)}
    assert ways[True, 0.11].arrived == pytest.approx(0.16), "40 ms held and 50 ms down before the commit at .25"
    assert 0.15 <= ways[True, 0.1].arrived <= 0.16, "sent before it, it arrives before it"
    down = ways[False, 0.2]
    assert down.sent == pytest.approx(0.2)
    assert down.arrived == 0.25
    assert ways[True, 0.0].arrived == pytest.approx(0.05), "the opening is answered at once"
    assert [flight.sent for flight in flights_of(TRACE) if flight.lost] == [0.45]


def test_messages_never_overtake_each_other_however_odd_the_acknowledgements() -> None:
    odd = [
        *RUN[:7],
        (0.11, up("draft", 2, ())),
        (0.12, up("draft", 3, ())),
        (0.5, commit(11, 1, ack=1, held_ms=0.0, rtt_ms=400.0)),
        (0.51, commit(12, 1, ack=2, held_ms=300.0, rtt_ms=100.0)),
        (0.52, commit(13, 1, ack=9)),
    ]
    flights = flights_of(Trace({}, tuple(Moment(t, happening) for t, happening in odd)))
    for going_up in (True, False):
        arrivals = [flight.arrived for flight in flights if flight.up is going_up]
        assert arrivals == sorted(arrivals)
    assert all(flight.sent <= flight.arrived for flight in flights)


def test_the_picture_knows_steps_tokens_pauses_and_outages() -> None:
    timeline = timeline_of(TRACE)
    assert [(span.kind, span.size) for span in timeline.steps] == [
        ("verify", 3),
        ("plain", 1),
        ("plain", 1),
        ("plain", 1),
    ]
    first = timeline.steps[0]
    assert first.start == pytest.approx(0.17), "30 ms before the commit left"
    assert first.end == pytest.approx(0.2)
    assert [(each.shipped, each.drafted, each.other) for each in timeline.landings] == [
        (2, 0, 1),
        (0, 1, 0),
        (0, 0, 1),
        (0, 0, 1),
    ]
    assert [(span.start, span.end) for span in timeline.pauses] == [(0.26, 0.40)]
    assert "costs more" in timeline.pauses[0].tip
    assert [(span.start, span.end) for span in timeline.outages] == [(0.5, 1.0)]
    assert [(span.start, span.end, span.kind) for span in timeline.drafts] == [(0.0, 0.01, "lm"), (0.40, 0.43, "idle")]


def test_a_part_of_a_run_has_what_reaches_into_it() -> None:
    part = timeline_of(TRACE, 0.12, 0.24)
    assert {(way.start, way.kind) for way in part.ways if way.up} == {(0.1, "draft"), (0.11, "draft")}
    assert part.landings == ()
    assert len(part.steps) == 2


def test_figures_are_those_of_the_records() -> None:
    summary = summary_of(TRACE)
    assert (summary.tokens, summary.commits, summary.plain_commits, summary.named) == (6, 4, 3, 2)
    assert summary.seconds == pytest.approx(1.2)
    assert summary.tokens_per_s == pytest.approx(5.0)
    assert summary.acceptance_length == pytest.approx(0.5)
    assert (summary.guesses, summary.kept, summary.shipped) == (3, 2, 2)
    assert summary.draft_age_ms == pytest.approx(145, abs=5), "from .01 to about .155 at the cloud"
    assert summary.decisions == {"extend": (1, 1)}
    assert (summary.covered, summary.surprises, summary.outages) == (1, 1, 2)
    assert summary.wire.up_bytes >= 5 * message_bytes(20)
    assert summary.wire.up_messages == 5
    json.dumps(as_json(summary))
    assert "5.0/s" in as_line(summary)


def test_a_part_that_begins_within_a_turn_counts_its_own_seconds() -> None:
    assert summary_of(TRACE.between(0.2, 0.35)).seconds == pytest.approx(0.09)


def corners_of(shape: Shape) -> list[tuple[float, float]]:
    match shape:
        case Line():
            return [(shape.x1, shape.y1), (shape.x2, shape.y2)]
        case Rect():
            return [(shape.x, shape.y), (shape.x + shape.width, shape.y + shape.height)]
        case Text():
            return [(shape.x, shape.y)]


def test_everything_is_drawn_within_the_paper_in_a_known_style() -> None:
    drawing = draw(timeline_of(TRACE), "title", "figures", row_s=0.3)
    for shape in drawing.shapes:
        assert shape.style in STYLES
        corners = corners_of(shape)
        assert all(0 <= x <= WIDTH and 0 <= y <= drawing.height for x, y in corners), shape


def test_a_message_slants_from_the_edge_when_it_leaves_to_the_cloud_when_it_arrives() -> None:
    drawing = draw(timeline_of(TRACE, 0.0, 0.5), "t", "f", row_s=0.5)
    second = (WIDTH - LEFT - RIGHT) / 0.5
    cloud, edge = (shape.y1 for shape in drawing.shapes if isinstance(shape, Line) and shape.style == "shore")
    assert cloud < edge
    line = next(s for s in drawing.shapes if isinstance(s, Line) and s.style == "commit" and s.tip)
    assert (line.y1, line.y2) == (cloud, edge)
    assert line.x1 == pytest.approx(LEFT + 0.2 * second)
    assert line.x2 == pytest.approx(LEFT + 0.25 * second)
    draft = [s for s in drawing.shapes if isinstance(s, Line) and s.style == "draft" and s.tip][-1]
    assert (draft.y1, draft.y2) == (edge, cloud)
    assert draft.x1 == pytest.approx(LEFT + 0.11 * second)


def test_a_message_that_crosses_strips_is_cut_between_them() -> None:
    drawing = draw(timeline_of(TRACE, 0.0, 0.45), "t", "f", row_s=0.225)
    parts = [s for s in drawing.shapes if isinstance(s, Line) and s.style == "commit" and s.tip]
    first, second = parts
    height = abs(first.y2 - first.y1) + abs(second.y2 - second.y1)
    cloud, edge, *_ = (s.y1 for s in drawing.shapes if isinstance(s, Line) and s.style == "shore")
    assert height == pytest.approx(edge - cloud)
    assert first.x2 == pytest.approx(WIDTH - RIGHT)
    assert second.x1 == pytest.approx(LEFT)


def test_the_svg_is_well_formed_and_says_more_on_hovering(path: Path, tmp_path: Path) -> None:
    assert list(show_command(ShowOptions(path))) == [f"{path}.svg"]
    root = ElementTree.parse(f"{path}.svg").getroot()
    assert root.tag.endswith("svg")
    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "m<&> · drafter ngram"
    tips = ["".join(title.itertext()) for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any("the connection broke" in tip for tip in tips)
    assert any("costs more than it earns" in tip for tip in tips)


def test_a_png_is_written_where_matplotlib_is(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "run.png"
    assert list(show_command(ShowOptions(path, out=out))) == [str(out)]
    assert out.read_bytes().startswith(b"\x89PNG")
    assert len(out.read_bytes()) > 10_000


def test_text_has_a_line_for_what_happened_in_order(path: Path) -> None:
    lines = list(show_command(ShowOptions(path, text=True)))
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)
    assert any(re.search(r"to 13: 3 = 2 by drafts \+ 1", line) for line in lines)
    assert any("outage" in line and "broke" in line for line in lines)
    assert len(lines) == len(RUN) - 2, "all but the jobs"


def test_json_says_what_its_bytes_count(path: Path) -> None:
    (line,) = show_command(ShowOptions(path, as_json=True))
    found = json.loads(line)
    assert found["tokens"] == 6
    assert "headers" in found["wire"]["counted"]
    assert found["branch_cache"] == {"surprises": 1, "covered": 1, "shipped": 0, "saved_tokens": 0}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"text": True, "as_json": True}, "choose one"),
        ({"out": Path("x.gif")}, r"\.svg or \.png"),
        ({"out": Path("/nowhere/x.svg")}, "cannot write"),
        ({"start": 5.0}, "has nothing from 5"),
        ({"end": 0.001, "start": 0.0005}, "choose other --from"),
        ({"row": 0.001}, "--row"),
        ({"session": 3}, "--session"),
    ],
)
def test_what_cannot_be_shown_is_said(path: Path, options: dict[str, object], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        list(show_command(ShowOptions(path, **options)))  # type: ignore[arg-type]


def test_a_trace_without_any_answer_can_be_shown(tmp_path: Path) -> None:
    file = tmp_path / "short.jsonl"
    file.write_text(json.dumps({"kind": "trace", "format": FORMAT}) + "\n" + line_of(0.5, 0, RUN[0][1]))
    assert summary_of(read_trace(file)).tokens_per_s == 0
    list(show_command(ShowOptions(file)))
    assert ElementTree.parse(f"{file}.svg") is not None
