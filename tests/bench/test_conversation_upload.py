"""The bench of uploads: what it counts, that ours does not grow with the conversation, and that JSON does."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from acespec.bench.conversation_text import CONVERSATION
from acespec.bench.conversation_upload import Ground, Row, compare, cut, ratios, totals
from acespec.bench.json_rival import request_bytes
from acespec.bench.upload_meter import Meter, Upload
from acespec.models.tokenizer import Tokenizer
from acespec.proto.timing_profile import TimingProfile
from acespec.sim.link import Direction, Drop, DropReason, Passage
from acespec.sim.log_check import summarise
from acespec.sim.packet_log import PacketLog, record_of
from acespec.sim.spec import LinkSpec
from tests.tiny import tiny_model_folder

LINK = replace(LinkSpec.preset("wan50"), jitter_ms=0.0)
QUICK = TimingProfile("quick", ((1, 0.002),), session_s=0.0, prefill_rate=1e5, source="made up")


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Row], Path]:
    """Three turns at 50 Kbps, measured once; and the folder of the links' logs."""
    folder = tmp_path_factory.mktemp("upload")
    tokenizer = Tokenizer.load(tiny_model_folder(folder / "model"))
    ground = Ground(tokenizer, LINK, QUICK, "ngram", folder)
    return compare(ground, [(question, answer[:90]) for question, answer in CONVERSATION[:3]]), folder


def test_what_we_send_does_not_grow_with_the_conversation(talk: tuple[list[Row], Path]) -> None:
    rows, _ = talk
    assert rows[2].prompt_tokens > rows[1].prompt_tokens > rows[0].prompt_tokens
    for row in rows[1:]:
        assert row.ours.question_bytes < row.new_bytes + 400, "the question, and a few headers"
        assert row.ours.question_bytes <= row.ours.turn_bytes


def test_json_sends_the_conversation_again(talk: tuple[list[Row], Path]) -> None:
    rows, _ = talk
    for before, row in pairwise(rows[1:]):
        assert row.json.question_bytes >= before.json.question_bytes + row.new_bytes + 90
        assert row.json.question_bytes > row.gzip.question_bytes > row.ours.question_bytes
        assert row.json.upload_s > row.ours.upload_s


def test_every_byte_of_the_link_belongs_to_a_turn(talk: tuple[list[Row], Path]) -> None:
    rows, folder = talk
    for way in ("ours", "json", "gzip"):
        counted = sum(getattr(row, way).turn_bytes for row in rows)
        ends = summarise(folder / f"{way}.jsonl").up_wire - counted
        assert 0 <= ends < 500, f"{way}: behind the last turn comes the connection's end and nothing else"


def test_uploads_take_at_least_the_time_that_the_line_needs(talk: tuple[list[Row], Path]) -> None:
    rows, _ = talk
    for row in rows[1:]:
        for upload in (row.json, row.gzip):
            assert upload.upload_s >= 0.05 + upload.question_bytes * 8 / 50_000 - 0.01


def test_the_meter_counts_what_went_up_and_was_not_turned_away(tmp_path: Path) -> None:
    log = PacketLog(tmp_path / "log", LinkSpec.preset("wan50"))
    meter = Meter(tmp_path / "log")

    def packet(direction: Direction, wire: int, dropped: DropReason | None = None) -> None:
        passage = Passage(0, 1, 2, wire) if dropped is None else Drop(dropped, 0, 1, wire)
        log.write(record_of(0, direction, 1, "data", wire - 52, passage))

    packet("up", 100)
    meter.begin()
    packet("up", 200)
    packet("down", 400)
    meter.whole()
    packet("up", 800)
    packet("up", 1600, "queue")
    packet("up", 3200, "loss")
    meter.whole()
    upload = meter.end()
    assert (upload.question_bytes, upload.turn_bytes) == (200, 4200)
    meter.begin()
    with pytest.raises(RuntimeError, match="never arrived"):
        meter.end()
    meter.close()
    log.close()


def test_a_request_says_all_and_no_more() -> None:
    messages = [{"role": "user", "content": "Où est la gare?"}]
    for packed in (False, True):
        head, _, body = request_bytes(messages, "host:1", packed=packed).partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in head
        text = gzip.decompress(body) if packed else body
        assert json.loads(text)["messages"] == messages
        assert "Où".encode() in text, "not escaped"


def test_a_text_is_cut_at_words_to_a_number_of_tokens() -> None:
    def letters(text: str) -> list[int]:
        return list(text.encode())

    assert cut("one two three", 8, letters) == "one two"
    assert cut("one two three", 6, letters) == "one"
    assert cut("one two three", 99, letters) == "one two three"


def test_sums_and_ratios() -> None:
    row = Row(10, 20, Upload(100, 200, 0.5), Upload(300, 400, 1.0), Upload(150, 300, 0.75))
    assert totals([row, row]).json == Upload(600, 800, 2.0)
    assert ratios(row)["json_question_bytes"] == 3.0
    assert ratios(row)["gzip_upload_s"] == 1.5


def test_the_conversation_has_twenty_turns_of_text() -> None:
    assert len(CONVERSATION) == 20
    assert all(20 < len(q) < 300 and 200 < len(a) < 700 for q, a in CONVERSATION)
    assert len({part for turn in CONVERSATION for part in turn}) == 40
