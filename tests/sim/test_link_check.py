"""`link-check`: an honest log passes; one in which a packet breaks a rule is caught at its line, by that rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.proto.errors import UsageError
from acespec.sim.link import LinkSpec
from acespec.sim.link_check import check_log, check_records
from acespec.sim.loss import GilbertElliott
from acespec.sim.outages import Outage
from acespec.sim.packet_log import PacketLog, PacketRecord
from acespec.sim.rate import RateTrace
from acespec.sim.units import MILLISECOND

from .link_strategies import Arrivals, arrivals, recorded, specs
from .test_cli import acespec_sim

GAPS = [(9 * MILLISECOND, (i * 37) % 900) for i in range(60)]
TRACE = RateTrace(((0, 80), (0.3, 0), (0.4, 30)), 0.7)
PLAIN = LinkSpec(50, 50, 50, queue_bytes=1500, name="plain")
LINKS = {
    "plain": PLAIN,
    "trace": PLAIN.varied(rate_up=TRACE, rate_down=TRACE),
    "outage": replace(PLAIN, outages=(Outage(0.1, 0.2),)),
    "half-duplex": replace(PLAIN, half_duplex=True),
    "jitter": replace(PLAIN, jitter_ms=10),
}
POLICED = replace(PLAIN, mode="police", burst_bytes=2000)

Change = Callable[[PacketRecord], PacketRecord]


def caught(spec: LinkSpec, pick: Callable[[PacketRecord], bool], change: Change) -> str:
    """The rule by which a change of the first packet picked, after some honest ones, is caught: at its line."""
    records = recorded(spec, GAPS, GAPS)
    index = next(i for i, record in enumerate(records) if i > 10 and pick(record))
    records[index] = change(records[index])
    violation = check_records(spec, records).violation
    assert violation is not None
    assert violation.line == index + 2
    return violation.rule


def passed(record: PacketRecord) -> bool:
    return record.drop is None and record.start > record.t_in


def moved(record: PacketRecord, **by: int) -> PacketRecord:
    return replace(record, **{field: getattr(record, field) + delta for field, delta in by.items()})


@pytest.mark.parametrize("name", LINKS)
def test_an_honest_log_passes(name: str) -> None:
    report = check_records(LINKS[name], recorded(LINKS[name], GAPS, GAPS))
    assert report.ok
    assert report.packets == 120
    assert report.summary.refused > 0
    assert "kept rate, order, delay and queue" in report.line()


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (lambda r: moved(r, finish=-1, release=-1), {"rate"}),
        (lambda r: moved(r, bytes=1, wire=1), {"rate"}),
        (lambda r: moved(r, wire=1), {"bytes"}),
        (lambda r: moved(r, finish=1, release=1), {"serialiser"}),
        (lambda r: moved(r, start=-1), {"order"}),
        (lambda r: moved(r, start=1), {"rate"}),
        (lambda r: replace(r, start=r.t_in - 1), {"order"}),
        (lambda r: replace(r, release=r.finish + 50 * MILLISECOND - 1), {"delay", "order"}),
        (lambda r: replace(r, t_in=0), {"order"}),
        (lambda r: replace(r, drop="loss", release=None), {"loss"}),
        (lambda r: replace(r, drop="police", release=None), {"queue"}),
        (lambda r: replace(r, release=None), {"delay"}),
    ],
)
def test_one_dishonest_packet_is_caught_at_its_line(name: str, change: Change, rules: set[str]) -> None:
    assert caught(LINKS[name], passed, change) in rules


def test_idling_with_a_queue_is_caught() -> None:
    assert caught(PLAIN, passed, lambda r: moved(r, start=5, finish=5, release=5)) == "serialiser"


def test_a_release_held_back_is_caught_where_there_is_no_jitter() -> None:
    assert caught(PLAIN, passed, lambda r: moved(r, release=1)) == "delay"


def test_refusing_what_has_room_is_caught() -> None:
    assert caught(PLAIN, passed, lambda r: replace(r, drop="queue", release=None)) == "queue"


def test_queueing_beyond_the_limit_is_caught() -> None:
    generous = recorded(replace(PLAIN, queue_bytes=4000), GAPS, GAPS)
    violation = check_records(PLAIN, generous).violation
    assert violation is not None
    assert violation.rule == "queue"
    assert "the queue holds 1500" in violation.message


def test_any_window_of_a_trace_is_held_to_its_integral() -> None:
    """A log of a constant 80 Kbps keeps to that rate; on a line that pauses after 0.3 s it does not."""
    records = recorded(replace(PLAIN, rate_up_kbps=80, rate_down_kbps=80), GAPS, GAPS)
    violation = check_records(PLAIN.varied(rate_up=TRACE, rate_down=TRACE), records).violation
    assert violation is not None
    assert violation.rule == "rate"
    assert records[violation.line - 2].finish > 300 * MILLISECOND


def test_loss_must_be_of_the_link() -> None:
    lossy = PLAIN.varied(loss=GilbertElliott(0.2, 0.3))
    records = recorded(lossy, GAPS, GAPS)
    assert check_records(lossy, records).ok
    violation = check_records(PLAIN, records).violation
    assert violation is not None
    assert violation.rule == "loss"
    delivered = check_records(PLAIN.varied(loss=100.0), recorded(PLAIN, GAPS, GAPS)).violation
    assert delivered is not None
    assert delivered.rule == "loss"


def test_a_policed_log_passes_and_its_faults_are_caught() -> None:
    records = recorded(POLICED, GAPS, GAPS)
    assert check_records(POLICED, records).ok
    assert any(record.drop == "police" for record in records)

    def refused(record: PacketRecord) -> bool:
        return record.drop == "police"

    def through(record: PacketRecord) -> bool:
        return record.drop is None

    def let_through(record: PacketRecord) -> PacketRecord:
        return replace(record, drop=None, release=record.finish + 50 * MILLISECOND)

    assert caught(POLICED, refused, let_through) == "rate"
    assert caught(POLICED, through, lambda r: replace(r, drop="police", release=None)) == "policer"
    assert caught(POLICED, through, lambda r: replace(r, drop="outage", release=None)) == "policer"
    assert caught(POLICED, through, lambda r: replace(r, drop="queue", release=None)) == "queue"
    assert caught(POLICED, through, lambda r: moved(r, finish=1, release=1)) == "policer"


@settings(max_examples=40)
@given(specs(modes=("queue",), jitter=False), arrivals, st.data())
def test_no_shift_of_a_packet_in_time_goes_unseen(spec: LinkSpec, gaps: Arrivals, data: st.DataObject) -> None:
    records = recorded(spec, gaps, [])
    candidates = [i for i, record in enumerate(records) if record.drop is None]
    if not candidates:
        return
    index = data.draw(st.sampled_from(candidates))
    field = data.draw(st.sampled_from(["start", "finish", "release", "wire"]))
    records[index] = moved(records[index], **{field: data.draw(st.sampled_from([-(10**9), -1, 1, 10**9]))})
    violation = check_records(spec, records).violation
    assert violation is not None
    assert violation.line == index + 2


def written(path: Path, spec: LinkSpec, records: list[PacketRecord]) -> Path:
    log = PacketLog(path, spec)
    for record in records:
        log.write(record)
    log.close()
    return path


def test_the_command_says_so_and_how_it_ends(tmp_path: Path) -> None:
    spec = LINKS["trace"]
    records = recorded(spec, GAPS, GAPS)
    good = written(tmp_path / "good", spec, records)
    assert check_log(good).ok
    done = acespec_sim("link-check", str(good))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("plain: 120 packets in")
    index = next(i for i, record in enumerate(records) if passed(record))
    records[index] = moved(records[index], finish=-1, release=-1)
    bad = written(tmp_path / "bad", spec, records)
    done = acespec_sim("link-check", str(bad))
    assert done.returncode == 1
    assert f"line {index + 2} breaks the rate" in done.stdout
    done = acespec_sim("link-check", str(bad), "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["ok"] is False
    assert report["violation"]["line"] == index + 2


def test_another_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("hello\n")
    with pytest.raises(UsageError, match="header of a link log"):
        check_log(tmp_path / "other")
    done = acespec_sim("link-check", str(tmp_path / "other"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")


def test_a_log_of_the_first_version_is_still_read(tmp_path: Path) -> None:
    path = written(tmp_path / "log", PLAIN, recorded(PLAIN, GAPS, GAPS))
    header, *lines = path.read_text().splitlines()
    old = json.loads(header)
    old["version"] = 1
    for field in ("rate_up", "rate_down", "burst_loss", "on_off", "mode", "burst_bytes", "tcp_backoff"):
        del old["spec"][field]
    path.write_text("\n".join([json.dumps(old), *lines]) + "\n")
    assert check_log(path).ok
