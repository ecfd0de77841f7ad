"""Invariant 13, the Mahimahi reader, and its CSV sister: what files mean, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.proto.errors import UsageError
from acespec.sim.curve import WORK_PER_BYTE, LoopedCurve
from acespec.sim.link import LinkDirection, LinkSpec
from acespec.sim.rate import RateTrace
from acespec.sim.rate_trace import read_mahimahi, read_rate_csv, read_rate_trace
from acespec.sim.units import MILLISECOND


def mahimahi(folder: Path, text: str) -> RateTrace:
    path = folder / "trace"
    path.write_text(text)
    return read_mahimahi(path)


def csv(folder: Path, text: str) -> RateTrace:
    path = folder / "rates.csv"
    path.write_text(text)
    return read_rate_csv(path)


def link_on(trace: RateTrace) -> LinkDirection:
    return LinkDirection(LinkSpec(1, 1, 0, overhead_bytes=0, queue_bytes=10**6).varied(rate_up=trace), "up")


def finishes(trace: RateTrace, packets: int) -> list[float]:
    """Milliseconds at which full packets, all there from the start, are through."""
    link = link_on(trace)
    return [link.offer(0, 1500).finish / MILLISECOND for _ in range(packets)]


def test_invariant_13_a_stamp_each_millisecond_is_12_mbps(tmp_path: Path) -> None:
    trace = mahimahi(tmp_path, "".join(f"{ms}\n" for ms in range(1, 101)))
    assert trace == RateTrace(((0, 12_000),), 0.1)
    assert trace.mean_kbps == 12_000


def test_invariant_13_packets_leave_at_the_stamps_and_the_trace_wraps_around(tmp_path: Path) -> None:
    assert finishes(mahimahi(tmp_path, "5\n20\n30\n"), 7) == [5, 20, 30, 35, 50, 60, 65]


def test_invariant_13_a_repeated_stamp_lets_as_many_packets_pass(tmp_path: Path) -> None:
    assert finishes(mahimahi(tmp_path, "5\n5\n10\n"), 5) == [4.5, 5, 10, 14.5, 15]
    assert finishes(mahimahi(tmp_path, "5\n5\n5\n5\n10\n"), 5) == [4.25, 4.5, 4.75, 5, 10]


def test_invariant_13_stamp_0_is_the_end_of_the_period_before(tmp_path: Path) -> None:
    assert finishes(mahimahi(tmp_path, "0\n10\n"), 3) == [9.5, 10, 19.5]


def test_invariant_13_a_trailing_newline_and_blank_lines_mean_nothing(tmp_path: Path) -> None:
    assert mahimahi(tmp_path, "5\n20\n") == mahimahi(tmp_path, "5\n20") == mahimahi(tmp_path, "5\n\n20\n\n\n")


def test_invariant_13_an_idle_slot_is_not_saved_up(tmp_path: Path) -> None:
    """A stamp that no packet was there to use is gone."""
    link = link_on(mahimahi(tmp_path, "5\n20\n30\n"))
    assert link.offer(6 * MILLISECOND, 1500).finish == 20 * MILLISECOND


def test_invariant_13_a_small_packet_pays_for_its_own_bytes_only(tmp_path: Path) -> None:
    link = link_on(mahimahi(tmp_path, "5\n20\n"))
    assert [link.offer(0, 750).finish / MILLISECOND for _ in range(4)] == [4.5, 5, 19.5, 20]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12).map(sorted).filter(lambda stamps: stamps[-1] > 0))
def test_invariant_13_by_each_stamp_the_line_has_carried_its_packets(
    tmp_path_factory: pytest.TempPathFactory, stamps: list[int]
) -> None:
    trace = mahimahi(tmp_path_factory.getbasetemp(), "\n".join(map(str, stamps)))
    curve, packet = LoopedCurve(trace.steps()), 1500 * WORK_PER_BYTE
    at_zero = stamps.count(0)
    for ms in range(1, stamps[-1]):
        by_then = sum(stamp <= ms for stamp in stamps) - at_zero
        assert curve.carried_by(ms * MILLISECOND) == by_then * packet
    assert curve.carried_by(3 * stamps[-1] * MILLISECOND) == 3 * len(stamps) * packet


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("5\nten\n", "line 2: 'ten' is no Mahimahi stamp"),
        ("5\n-6\n", "line 2"),
        ("5\n6.5\n", "line 2"),
        ("5\n\n4\n", "line 3: 4 ms comes after 5 ms"),
        ("0\n0\n", "spans no time"),
    ],
)
def test_invariant_13_a_bad_trace_is_refused_by_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        mahimahi(tmp_path, text)


def test_a_csv_holds_each_rate_until_the_next(tmp_path: Path) -> None:
    trace = csv(tmp_path, "t,kbps\n100,50\n101.5,0\n102,80.5\n")
    assert trace == RateTrace(((0, 50), (1.5, 0), (2, 80.5)), 2.5)
    assert csv(tmp_path, "0,50") == RateTrace(((0, 50),), 1)
    assert csv(tmp_path, "0, 50\r\n1, 60\r\n") == RateTrace(((0, 50), (1, 60)), 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("t,kbps\n", "has a heading but no lines"),
        ("0,50\n1;60\n", "line 2: cannot read '1;60'"),
        ("0,50\n1,\n", "line 2"),
        ("0,50\n1,60,70\n", "line 2"),
        ("0,50\n0,60\n", r"rates\.csv line 2: .*times must ascend"),
        ("0,50\n1,-60\n", r"rates\.csv: .*-60\.0 Kbps"),
        ("0,50\nnan,60\n", r"line 2: nan s does not come after"),
        ("0,0\n1,0\n", "never carries"),
    ],
)
def test_a_bad_csv_is_refused_by_line_or_value(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        csv(tmp_path, text)


def test_the_kind_of_a_file_is_seen_from_its_first_line(tmp_path: Path) -> None:
    path = tmp_path / "either"
    path.write_text("\n0,50\n1,60\n")
    assert read_rate_trace(path) == RateTrace(((0, 50), (1, 60)), 2)
    path.write_text("1\n2\n")
    assert read_rate_trace(path).mean_kbps == 12_000
    with pytest.raises(UsageError, match="cannot read rate trace"):
        read_rate_trace(tmp_path / "none")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not text"):
        read_rate_trace(path)


def test_a_fast_trace_scaled_down_keeps_its_shape(tmp_path: Path) -> None:
    fast = mahimahi(tmp_path, "".join(f"{ms}\n" for ms in range(1, 501)) + "1000\n")
    slow = fast.scale_to_mean_kbps(50)
    assert slow.mean_kbps == pytest.approx(50)
    curve = LoopedCurve(slow.steps())
    assert curve.carried_by(500 * MILLISECOND) / curve.carried_by(1000 * MILLISECOND) == pytest.approx(
        500 / 501, abs=1e-5
    )
