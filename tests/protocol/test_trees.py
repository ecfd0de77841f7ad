"""Draft trees change how fast tokens come and never which: the same schedules with every shape and controller."""

from __future__ import annotations

import dataclasses

import pytest

from acespec.sim.rehearsal import Rehearsal, rehearse
from acespec.sim.schedule import Ask, Schedule, Setup
from acespec.sim.schedule_dice import CONTROLLERS, random_schedule

SHAPES = ("off", "siblings:2", "siblings:8", "on")


def run(**setup: object) -> Rehearsal:
    world = Setup(accuracy=0.6, **setup)  # type: ignore[arg-type]
    rehearsal = Rehearsal(Schedule(world, tuple(Ask(0, "new", 60, seed) for seed in range(40))))
    rehearsal.run()
    return rehearsal


def steps(rehearsal: Rehearsal) -> int:
    return sum(server.runner.steps for server in rehearsal.servers)


@pytest.mark.parametrize("tree", SHAPES)
def test_any_schedule_with_any_shape_ends_with_the_right_ids(tree: str) -> None:
    for seed in range(5000, 5080):
        schedule = random_schedule(seed)
        for controller, ahead in ((CONTROLLERS[seed % len(CONTROLLERS)], -1), ("rate", 8)):
            setup = dataclasses.replace(schedule.setup, tree=tree, controller=controller, ahead=ahead)
            fault = rehearse(dataclasses.replace(schedule, setup=setup))
            assert fault is None, f"seed {seed}, {tree}, {controller}: {fault}"


@pytest.mark.parametrize("ahead", [-1, 8])
def test_siblings_and_branches_save_verify_steps_while_the_cloud_runs_freely(ahead: int) -> None:
    chain, siblings, tree = (
        run(policy="always", step=0.15, tree=shape, ahead=ahead) for shape in ("off", "siblings:4", "on")
    )
    assert steps(siblings) < 0.99 * steps(chain)
    assert steps(tree) < 0.95 * steps(chain)


@pytest.mark.parametrize("ahead", [-1, 8])
def test_a_cloud_that_waits_for_drafts_is_done_sooner_with_a_tree(ahead: int) -> None:
    """Every surprise that the tree covers saves a round trip."""
    chain, siblings, tree = (
        run(policy="never", rate=0.0, tree=shape, ahead=ahead) for shape in ("off", "siblings:4", "on")
    )
    assert siblings.agenda.now < 0.97 * chain.agenda.now
    assert tree.agenda.now < 0.91 * chain.agenda.now
    cache = tree.edges[0].session.branch_cache
    assert cache.surprises > 100
    assert 0.5 < cache.covered / cache.surprises < 1.0
    assert cache.shipped > 0.5 * cache.covered
    assert cache.saved > cache.covered
