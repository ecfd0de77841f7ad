"""The packet log and what is read from it: round trip, totals, and the worst second against brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.proto.errors import UsageError
from acespec.sim.link import LinkDirection, LinkSpec
from acespec.sim.log_check import LinkSummary, summarise
from acespec.sim.outages import Outage
from acespec.sim.packet_log import PacketLog, PacketRecord, read_records, read_spec, record_of
from acespec.sim.rate_meter import RateMeter
from acespec.sim.units import MILLISECOND, SECOND

SPEC = LinkSpec(50, 25, 50, jitter_ms=10, loss_percent=10, outages=(Outage(1, 0.5),), seed=2)


def booked(spec: LinkSpec) -> list[PacketRecord]:
    up, down = LinkDirection(spec, "up"), LinkDirection(spec, "down")
    records = []
    for i in range(300):
        t = i * 20 * MILLISECOND
        records.append(record_of(t, "up", 1, "data", 200, up.offer(t, 200)))
        records.append(record_of(t, "down", 1, "ack", 0, down.offer(t, 0)))
    return records


def written(path: Path, records: list[PacketRecord]) -> Path:
    log = PacketLog(path, SPEC, ["acespec-sim", "link"])
    for record in records:
        log.write(record)
    log.close()
    return path


def test_a_log_reads_back(tmp_path: Path) -> None:
    records = booked(SPEC)
    path = written(tmp_path / "link.jsonl", records)
    assert read_spec(path) == SPEC
    assert list(read_records(path)) == records
    assert summarise(path) == summarise(records)


def test_the_first_line_describes_the_rest(tmp_path: Path) -> None:
    header = json.loads(written(tmp_path / "log", []).read_text().splitlines()[0])
    assert header["format"] == "acespec-link-log"
    assert header["command"] == ["acespec-sim", "link"]
    assert header["spec"]["rate_up_kbps"] == 50
    assert header["time_unit"] == "ns since start"


def test_totals_count_what_used_the_link() -> None:
    records = booked(SPEC)
    summary = summarise(records)
    sent = [r for r in records if r.drop != "queue"]
    assert summary.refused == len(records) - len(sent) > 0
    assert summary.lost == sum(r.drop == "loss" for r in sent) > 0
    ups = [r for r in sent if r.dir == "up"]
    assert summary.up_payload == 200 * len(ups)
    assert summary.up_wire == 252 * len(ups)
    assert (summary.down_payload, summary.down_wire) == (0, 52 * (len(sent) - len(ups)))


def test_retransmissions_are_wire_bytes_but_not_payload() -> None:
    first = PacketRecord(0, "up", 1, "data", 100, 152, 0, SECOND, None, "loss")
    again = replace(first, kind="retransmission", start=SECOND, finish=2 * SECOND, release=2 * SECOND, drop=None)
    summary = summarise([first, again])
    assert (summary.up_payload, summary.up_wire, summary.lost) == (100, 304, 1)


def test_a_link_at_its_rate_is_fine_and_one_above_it_is_not() -> None:
    spec = replace(SPEC, outages=(), loss_percent=0)
    summary = summarise(booked(spec))
    assert summary.up_peak_kbps_1s == pytest.approx(50, rel=1e-6)
    assert summary.rate_ok(spec)
    assert not summary.rate_ok(replace(spec, rate_up_kbps=49.99))
    assert not summary.rate_ok(replace(spec, rate_down_kbps=summary.down_peak_kbps_1s * 0.999))


def test_overlapping_packets_are_caught() -> None:
    honest = PacketRecord(0, "up", 1, "data", 6198, 6250, 0, SECOND, SECOND, None)
    assert summarise([honest]).rate_ok(SPEC)
    assert not summarise([honest, replace(honest, wire=10)]).rate_ok(SPEC)


def test_no_packets_no_bytes() -> None:
    assert summarise([]) == LinkSummary(0, 0, 0, 0, 0, 0, 0.0, 0.0, 0, 0, 0.0)


packets = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 400), st.integers(1, 50)), max_size=12)


@given(packets)
def test_the_meter_finds_the_worst_window(gaps: list[tuple[int, int, int]]) -> None:
    """Against every window on a grid of whole units, on which all edges lie."""
    window, meter, t = 1000, RateMeter(window=1000), 0
    spans = []
    for gap, length, wire in gaps:
        spans.append((t + gap, t + gap + length, wire))
        t += gap + length
    for span in spans:
        meter.add(*span)
    density = [0.0] * (t + 2 * window)
    for start, finish, wire in spans:
        for unit in range(start, finish):
            density[unit + window] += wire / (finish - start)
    running = worst = 0.0
    for unit in range(len(density)):
        running += density[unit] - (density[unit - window] if unit >= window else 0)
        worst = max(worst, running)
    assert meter.peak_kbps * window / (8 * SECOND) * 1000 == pytest.approx(worst, abs=1e-6)


def test_the_meter_forgets_old_packets() -> None:
    meter = RateMeter()
    for i in range(20_000):
        meter.add(i * SECOND // 10, i * SECOND // 10 + 1000, 100)
    assert len(meter._recent) < 40
    assert meter.peak_kbps == pytest.approx(8.0, rel=0.01)


@pytest.mark.parametrize("content", ["", "{}\n", "not json\n", '{"format":"acespec-link-log","version":99}\n'])
def test_another_file_is_no_link_log(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other"
    path.write_text(content)
    with pytest.raises(UsageError, match="header of a link log"):
        summarise(path)


def test_a_torn_line_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "log", booked(SPEC)[:3])
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UsageError, match="line 4"):
        summarise(path)


def test_a_missing_log_and_an_unwritable_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        summarise(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot write"):
        PacketLog(tmp_path / "no" / "such", SPEC)
