"""The brain's work grows with what changes, not with the size of the tree: counted in instructions, not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from acespec.bench.brain.steady_tree import TOKENS_A_STEP, SteadyTree
from acespec.edge.brain.remembered import Remembered
from acespec.edge.session import EdgeSession
from acespec.sim.world.result import Result
from acespec.sim.world.scenario import LoadSpec, Scenario, StrategySpec, TargetSpec
from acespec.sim.world.world import run

if TYPE_CHECKING:
    from _typeshed import TraceFunction

STEPS = 4
BRAIN = ("receive", "drafted", "draft_job", "is_void", "poll", "wake_at")


class Counter:
    """Instructions of the interpreter, while it is asked to count."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: FrameType, event: str, arg: object) -> TraceFunction:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self.count += event == "opcode"
        return self.trace


@contextmanager
def counted(patch: pytest.MonkeyPatch, counter: Counter) -> Iterator[None]:
    """Count the instructions of all methods of sessions that drive them."""

    def counting(method: Callable[..., object]) -> Callable[..., object]:
        def traced(*args: object, **named: object) -> object:
            before = sys.gettrace()
            sys.settrace(counter.trace)
            try:
                return method(*args, **named)
            finally:
                sys.settrace(before)

        return traced

    with patch.context() as own:
        for name in BRAIN:
            own.setattr(EdgeSession, name, counting(getattr(EdgeSession, name)))
        yield


def work(patch: pytest.MonkeyPatch, nodes: int) -> tuple[int, int]:
    """Instructions for the drafting between commits, and for the commits, with a tree of so many nodes."""
    tree, drafting, committing = SteadyTree(nodes), Counter(), Counter()
    tree.begin(STEPS * TOKENS_A_STEP + nodes)
    for _ in range(STEPS):
        tree.fill()
        held = tree.session.nodes
        assert held >= nodes - 48, "the tree is not full: this would measure another thing"
        with counted(patch, drafting):
            tree.draft()
        with counted(patch, committing):
            tree.commit()
    return drafting.count, committing.count


def test_drafting_and_shipping_cost_the_same_in_a_large_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    (small, _), (large, _) = work(monkeypatch, 64), work(monkeypatch, 1024)
    assert small > 1000, "nothing was counted"
    assert large < 1.1 * small


def test_a_commit_costs_no_more_than_a_walk_through_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, small), (_, large) = work(monkeypatch, 256), work(monkeypatch, 1024)
    assert large < 4 * small
    assert large / STEPS / 1024 < 100


@pytest.mark.parametrize("tree", ["off", "siblings:4", "on"])
def test_what_is_remembered_changes_no_decision(tree: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = [0, 0]

    def talk() -> Result:
        return run(
            Scenario(
                duration_s=600.0,
                target=TargetSpec(profile="a100-70b"),
                load=LoadSpec(tokens=120),
                strategy=StrategySpec("ours", {"draft": "rate", "tree": tree}),
            )
        )

    def forgetful(self: Remembered[object], state: object) -> object:
        asks[0] += 1
        asks[1] += state == self._state
        self._state = state
        return self._ask()

    remembering = talk()
    monkeypatch.setattr(Remembered, "answer", forgetful)
    assert talk().digest == remembering.digest
    assert asks[1] > asks[0] / 4, "many questions were asked in the same state before"
