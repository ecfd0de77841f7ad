"""A delay that changes on the way: packets, the check of a log, files, and who cannot have it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.proto.errors import UsageError
from acespec.sim.delay import DelayCurve, DelayStep
from acespec.sim.link import LinkDirection, LinkSpec, Passage
from acespec.sim.link_check import check_records
from acespec.sim.link_file import read_link_file
from acespec.sim.spec_reader import spec_from_table
from acespec.sim.tc import Shaping
from acespec.sim.units import MILLISECOND, SECOND
from acespec.sim.world.scenario import LinkChoice, LoadSpec, Scenario, StrategySpec, TargetSpec
from acespec.sim.world.strategies.real_edge import RealEdge
from acespec.sim.world.world import World
from tests.sim.link_strategies import Arrivals, arrivals, queues, recorded

PLAIN = LinkSpec(rate_up_kbps=1000, rate_down_kbps=1000, delay_ms=50)
STEPPED = replace(PLAIN, delay_steps=(DelayStep(1.0, 150), DelayStep(2.0, 10)))

stepped_delays = st.lists(
    st.tuples(st.sampled_from([0.001, 0.02, 0.5, 1.7]), st.sampled_from([0.0, 20.0, 300.0])), min_size=1, max_size=3
)


def released(spec: LinkSpec, *times: int) -> list[int]:
    link = LinkDirection(spec, "up")
    passages = [link.offer(t, 73) for t in times]
    assert all(isinstance(passage, Passage) for passage in passages)
    return [passage.release for passage in passages if isinstance(passage, Passage)]


def test_a_packet_has_the_delay_of_the_moment_at_which_it_leaves_the_line() -> None:
    ms = MILLISECOND  # 125 bytes with headers take 1 ms.
    assert released(STEPPED, 0, 998 * ms, 999 * ms, 1500 * ms) == [51 * ms, 1049 * ms, 1150 * ms, 1651 * ms]


def test_a_shorter_delay_lets_nothing_overtake() -> None:
    before, at_once, later = released(STEPPED, 1990 * MILLISECOND, 2005 * MILLISECOND, 2200 * MILLISECOND)
    assert before == 2141 * MILLISECOND
    assert at_once == before
    assert later == 2211 * MILLISECOND


def test_the_curve_holds_each_delay_until_the_next_step() -> None:
    curve = DelayCurve(50, STEPPED.delay_steps)
    moments = (0, SECOND - 1, SECOND, 2 * SECOND - 1, 2 * SECOND, 10**15)
    assert [curve.at(t) // MILLISECOND for t in moments] == [50, 50, 150, 150, 10, 10]


@given(spec=queues, steps=stepped_delays, up=arrivals, down=arrivals)
@settings(max_examples=60)
def test_the_check_of_a_log_knows_the_steps(
    spec: LinkSpec, steps: list[tuple[float, float]], up: Arrivals, down: Arrivals
) -> None:
    at, curve = 0.0, []
    for gap, delay in steps:
        at += gap
        curve.append(DelayStep(at, delay))
    stepped = replace(spec, delay_steps=tuple(curve))
    records = recorded(stepped, up, down)
    assert check_records(stepped, records).ok
    delays = DelayCurve(spec.delay_ms, curve)
    for record in records:
        assert record.release is None or record.release >= record.finish + delays.at(record.finish)


def test_a_log_of_another_delay_is_caught() -> None:
    records = recorded(STEPPED, [(1500 * MILLISECOND, 10)], [])
    assert check_records(STEPPED, records).ok
    violation = check_records(PLAIN, records).violation
    assert violation is not None
    assert violation.rule == "delay"
    early = check_records(STEPPED, recorded(PLAIN, [(1500 * MILLISECOND, 10)], [])).violation
    assert early is not None
    assert early.rule == "delay"


def test_files_and_tables_say_it_in_two_ways(tmp_path: Path) -> None:
    assert spec_from_table(STEPPED.as_json()) == STEPPED
    path = tmp_path / "hop.toml"
    path.write_text(
        "rate_up_kbps = 1000\nrate_down_kbps = 1000\ndelay_ms = 50\n"
        'delay_steps = ["1:150", { start_s = 2, delay_ms = 10 }]\n',
        encoding="utf-8",
    )
    assert read_link_file(path) == replace(STEPPED, name="hop")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["1:150", "1:10"], "in order of time"),
        (["2:150", "1:10"], "in order of time"),
        (["0:150"], "START above 0"),
        (["1:-1"], "between 0 and 1e7"),
        (["1:nan"], "makes no sense"),
        (["150"], "SECONDS:MILLISECONDS"),
        ([{"start_s": 1}], "delay_ms"),
        ("1:150", "a list"),
    ],
)
def test_what_makes_no_sense_is_refused(steps: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        spec_from_table({"delay_steps": steps}, PLAIN)


def test_tc_cannot_have_it() -> None:
    with pytest.raises(UsageError, match="a delay that changes"):
        Shaping(STEPPED, "eth0")


def test_an_edge_of_the_world_sees_the_new_round_trip() -> None:
    """Plain decoding: a gap of 200 ms and a step where the way grows longer, and round trips of 20, then 420 ms."""
    link = {"rate_up_kbps": 1e5, "rate_down_kbps": 1e5, "delay_ms": 10, "delay_steps": ["2:210"]}
    scenario = Scenario(
        link=LinkChoice(None, overrides=link),
        target=TargetSpec(profile="theory-25ms", free_run="always", target_rate=0),
        load=LoadSpec(tokens=120),
        strategy=StrategySpec("plain"),
    )
    world = World(scenario)
    world.run()
    assert max(world.recorder.edges[0].gaps) >= 0.225 * SECOND
    actor = world.places[0].actor
    assert isinstance(actor, RealEdge)
    trips = list(actor.session.rtts)
    assert trips[0] == pytest.approx(0.02, abs=0.002)
    assert trips[-1] == pytest.approx(0.42, abs=0.002)
