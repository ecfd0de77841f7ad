"""Virtual time: order, exact nanoseconds, nothing early."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from acespec.sim.agenda import Agenda, ns_not_before

SECONDS = st.floats(0, 1e6, allow_nan=False)


@given(st.lists(st.integers(0, 50), max_size=40))
def test_actions_run_in_the_order_of_their_times_and_ties_in_that_of_the_asking(times: list[int]) -> None:
    agenda = Agenda()
    seen: list[tuple[int, int]] = []
    for number, time in enumerate(times):
        agenda.at_ns(time, partial(seen.append, (time, number)))
    agenda.run(1.0)
    assert seen == sorted(seen)
    assert agenda.done == len(times)


@given(SECONDS)
def test_nothing_is_early_and_nothing_late_by_more_than_a_nanosecond(seconds: float) -> None:
    time = ns_not_before(seconds)
    assert time / 1e9 >= seconds
    assert (time - 2) / 1e9 <= seconds


@given(st.integers(0, 10**15))
def test_whole_nanoseconds_survive_the_way_through_seconds(time: int) -> None:
    assert ns_not_before(time / 1e9) == time


def test_what_is_asked_for_the_past_happens_now() -> None:
    agenda, seen = Agenda(), []
    agenda.at(2.0, lambda: agenda.at(1.0, lambda: seen.append(agenda.now)))
    agenda.run(3.0)
    assert seen == [2.0]
    assert agenda.now == 3.0


def test_soon_is_after_everything_that_was_asked_for_this_time() -> None:
    agenda, seen = Agenda(), []
    agenda.at_ns(5, lambda: agenda.soon(lambda: seen.append("soon")))
    agenda.at_ns(5, lambda: seen.append("first"))
    agenda.run(1.0)
    assert seen == ["first", "soon"]


def test_an_action_may_stop_the_run() -> None:
    agenda, seen = Agenda(), []
    agenda.at(1.0, agenda.stop)
    agenda.at(1.0, lambda: seen.append(1))
    assert not agenda.run(2.0)
    assert (agenda.now, seen) == (1.0, [])
    assert agenda.run(2.0)
    assert (agenda.now, seen) == (2.0, [1])


def test_a_step_is_one_action_at_most() -> None:
    agenda = Agenda()
    agenda.at(1.0, lambda: None)
    assert not agenda.step(0.999)
    assert agenda.step(1.0)
    assert not agenda.step(9.0)
