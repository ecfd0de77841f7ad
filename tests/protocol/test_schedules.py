"""Random schedules: whatever happens on the way, every edge gets exactly the ids of plain decoding."""

from __future__ import annotations

import dataclasses

import pytest

from acespec.proto.errors import UsageError
from acespec.sim.rehearsal import Rehearsal, rehearse
from acespec.sim.schedule import Fault, Schedule, parse_schedule
from acespec.sim.schedule_dice import random_schedule
from acespec.sim.shrink import shrink

SCHEDULES = 2000


@pytest.mark.parametrize("part", range(4))
def test_random_schedules_end_with_the_right_ids(part: int) -> None:
    for seed in range(part, SCHEDULES, 4):
        schedule = random_schedule(seed)
        if (fault := rehearse(schedule)) is not None:
            small = shrink(schedule, lambda smaller: rehearse(smaller) is not None)
            pytest.fail(f"seed {seed}: {fault}\n# small: {rehearse(small)}\n{small}")


@pytest.mark.slow
def test_many_faults_at_once() -> None:
    for seed in range(1_000_000, 1_002_000):
        schedule = random_schedule(seed, most_asks=5, most_faults=25)
        assert rehearse(schedule) is None, str(schedule)


def test_a_schedule_always_gives_the_same_run() -> None:
    def trace(schedule: Schedule) -> tuple[int, float, list[list[int]], list[int]]:
        run = Rehearsal(schedule)
        run.run()
        return run.agenda.done, run.agenda.now, [e.session.ids for e in run.edges], [s.runner.rows for s in run.servers]

    for seed in range(30):
        assert trace(random_schedule(seed)) == trace(random_schedule(seed))


def test_the_script_of_a_schedule_is_the_schedule() -> None:
    for seed in range(200):
        schedule = random_schedule(seed)
        assert parse_schedule(str(schedule)) == schedule
    with_comment = f"# it failed so\n\n{random_schedule(3)}\n"
    assert parse_schedule(with_comment) == random_schedule(3)


@pytest.mark.parametrize(
    "line", ["setup colour=blue", "ask edge=0 kind=new", "at 1.0 quake", "at soon cut", "now cut", "at 1.0 cut edge"]
)
def test_a_script_that_makes_no_sense_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="schedule"):
        parse_schedule(line)


def test_shrinking_keeps_the_cause_alone() -> None:
    schedule = random_schedule(8, most_asks=3, most_faults=0)
    noise = tuple(Fault(0.1 * n, "stall", 0, 0.02) for n in range(12))
    schedule = dataclasses.replace(schedule, faults=(*noise[:7], Fault(0.65, "kill", 0, 1.2), *noise[7:]))
    small = shrink(schedule, lambda s: any(f.kind == "kill" for f in s.faults))
    assert [f.kind for f in small.faults] == ["kill"]
    assert len(small.asks) == 1
    assert small.asks[0].tokens == 1
