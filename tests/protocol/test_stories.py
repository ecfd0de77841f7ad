"""One story at a time: what each form of an `Open` costs, and what each misfortune leads to."""

from __future__ import annotations

import pytest

from acespec.sim.rehearsal import Rehearsal
from acespec.sim.schedule import Schedule, parse_schedule
from acespec.sim.schedule_dice import POLICIES
from acespec.sim.toy_server import MAX_DRAFT

QUICK = "setup policy=always rate=0 up=0.05 down=0.05 step=0.01 draft=0.002 accuracy=0.8 ahead=4 salt=3"


def play(*lines: str) -> Rehearsal:
    """Run a script to its end; the world that is left."""
    world = Rehearsal(parse_schedule("\n".join(lines)))
    world.run()
    return world


def up_to(seconds: float, *lines: str) -> Rehearsal:
    """Run a script up to a moment."""
    world = Rehearsal(parse_schedule("\n".join(lines)))
    for fault in world.schedule.faults:
        world.go_on(fault.at)
        world.inject(fault)
    world.go_on(seconds)
    return world


def test_a_regenerate_sends_no_prompt_and_gives_another_answer() -> None:
    first = play(QUICK, "ask edge=0 kind=new tokens=30 seed=9").edges[0]
    edge = play(QUICK, "ask edge=0 kind=new tokens=30 seed=9", "ask edge=0 kind=again tokens=30 seed=10").edges[0]
    assert edge.session.terms is not None
    assert edge.session.terms.kept == len(edge.prompt)
    assert edge.prompt == first.prompt
    assert edge.session.ids != first.session.ids


def test_the_same_request_again_is_told_again_without_a_step() -> None:
    ask = "ask edge=0 kind=new tokens=30 seed=9"
    once, twice = play(QUICK, ask), play(QUICK, ask, "ask edge=0 kind=same tokens=1 seed=0")
    terms = twice.edges[0].session.terms
    assert terms is not None
    assert terms.resumed
    assert twice.edges[0].session.ids == once.edges[0].session.ids
    assert twice.servers[0].runner.steps == once.servers[0].runner.steps


def test_a_cancelled_request_asked_again_is_answered_in_full() -> None:
    world = play(
        QUICK, "ask edge=0 kind=new tokens=30 seed=9", "ask edge=0 kind=same tokens=1 seed=0", "at 0.35 cancel"
    )
    terms = world.edges[0].session.terms
    assert terms is not None
    assert not terms.resumed
    assert world.edges[0].finished == 2


def test_an_edited_history_keeps_what_is_before_the_edit() -> None:
    ask = "ask edge=0 kind=new tokens=30 seed=9"
    before = play(QUICK, ask).edges[0].session.ids
    edge = play(QUICK, ask, "ask edge=0 kind=edit tokens=5 seed=4").edges[0]
    common = next(i for i, (a, b) in enumerate(zip(before, edge.session.ids, strict=False)) if a != b)
    assert edge.session.terms is not None
    assert 0 < edge.session.terms.kept <= common


def test_a_shared_prompt_is_named_and_not_sent() -> None:
    asks = "ask edge=0 kind=new tokens=20 seed=9", "ask edge=1 kind=shared tokens=20 seed=11"
    world = up_to(0.6, QUICK, asks[0], "ask edge=1 kind=new tokens=1 seed=1")
    world.edges[1].wish(parse_schedule(asks[1]).asks[0])
    world.finish()
    one, other = world.edges
    assert one.prompt == other.prompt
    assert other.session.terms is not None
    assert other.session.terms.kept == len(one.prompt)
    assert one.session.ids != other.session.ids


def test_a_shared_prompt_that_the_replica_does_not_know_is_sent_after_all() -> None:
    world = up_to(0.6, QUICK, "ask edge=0 kind=new tokens=20 seed=9", "ask edge=1 kind=new tokens=1 seed=1")
    world.edges[1].target = 1
    world.edges[1].stream = None
    world.edges[1].wish(parse_schedule("ask edge=1 kind=shared tokens=20 seed=11").asks[0])
    world.finish()
    terms = world.edges[1].session.terms
    assert terms is not None
    assert terms.kept == 0
    assert world.edges[1].finished == 2


def test_a_cut_link_is_resumed_from_what_the_server_holds() -> None:
    world = up_to(0.8, QUICK, "ask edge=0 kind=new tokens=30 seed=9", "at 0.2505 cut")
    terms = world.edges[0].session.terms
    assert terms is not None
    assert terms.resumed
    world.finish()


def test_a_killed_server_is_told_everything() -> None:
    world = play(QUICK, "ask edge=0 kind=new tokens=30 seed=9", "at 0.2505 kill seconds=0.3")
    terms = world.edges[0].session.terms
    assert terms is not None
    assert (terms.kept, terms.resumed) == (0, False)


def test_back_at_the_first_replica_its_older_state_is_used() -> None:
    """It holds the prompt and some tokens; the edge brings the rest."""
    quiet = QUICK.replace("step=0.01", "step=0.05")
    world = up_to(
        1.7, quiet, "ask edge=0 kind=new tokens=30 seed=9", "at 0.4 move seconds=0.1", "at 1.0 move seconds=0.1"
    )
    terms = world.edges[0].session.terms
    assert world.edges[0].target == 0
    assert terms is not None
    assert terms.kept >= len(world.edges[0].prompt)
    world.finish()


def test_at_the_run_ahead_bound_stepping_stops() -> None:
    world = up_to(
        2.0, f"{QUICK} run_ahead=8 grace=30", "ask edge=0 kind=new tokens=120 seed=737", "at 0.2 mute seconds=9"
    )
    (turn,) = world.servers[0].table.turns
    assert 8 <= len(turn.tokens) - turn.received <= 8 + MAX_DRAFT
    assert not turn.may_step
    world.finish()


def test_a_silent_edge_is_detached_after_the_grace_period() -> None:
    """Its stream is ended, so that it knows; it resumes with another one."""
    world = up_to(5.5, f"{QUICK} grace=2", "ask edge=0 kind=new tokens=120 seed=737", "at 0.2 mute seconds=30")
    terms = world.edges[0].session.terms
    assert terms is not None
    assert terms.epoch > 1
    assert terms.resumed
    world.finish()


def test_a_slow_reader_gets_few_and_large_commits() -> None:
    setup = f"{QUICK} window=2 run_ahead=64"
    world = up_to(3.35, setup, "ask edge=0 kind=new tokens=120 seed=737", "at 0.2 deafen seconds=3")
    edge = world.edges[0]
    assert len(edge.session.ids) - len(edge.prompt) >= 60
    assert edge.session.wire_totals(3.35).down_messages <= 6
    world.finish()


def test_a_draining_server_sends_its_edges_elsewhere() -> None:
    world = play(QUICK, "ask edge=0 kind=new tokens=120 seed=737", "at 0.2 drain seconds=0.3")
    assert world.edges[0].finished == 1
    assert world.edges[0].session.terms is not None


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rate", [0, 20])
@pytest.mark.parametrize("ahead", [0, 4])
def test_nothing_waits_without_need(policy: str, rate: int, ahead: int) -> None:
    """On a good link a turn takes no longer than its rate, its steps, or the edge's requests explain."""
    setup = f"setup policy={policy} rate={rate} up=0.01 down=0.01 step=0.01 draft=0.001 accuracy=0.9 ahead={ahead}"
    world = Rehearsal(parse_schedule(f"{setup}\nask edge=0 kind=new tokens=40 seed=1518"))
    edge = world.edges[0]
    while edge.finished == 0:
        assert world.agenda.step(60.0)
    tokens = len(edge.session.ids) - len(edge.prompt)
    a_token = 0.0125 if policy != "never" else 0.05
    assert world.agenda.now <= 0.5 + tokens * (a_token + 0.005)


def test_the_default_world_is_a_schedule() -> None:
    assert parse_schedule("ask edge=0 kind=new tokens=3 seed=1").faults == Schedule(parse_schedule("").setup, ()).faults
