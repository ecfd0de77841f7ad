"""Which idea of the brain its processor time goes to, by the files that a profile names."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import PurePath

from acespec.bench.brain.stopwatch import brain_profile
from acespec.sim.world.scenario import Scenario
from acespec.sim.world.world import run

IDEAS = {
    "tree": ("draft_tree", "draft_desk", "frontier", "ranking", "branch_cache"),
    "estimates": ("survival",),
    "pricing": (
        "controller", "rate_controller", "confidence_controller", "ucb_controller", "adaptive", "averages",
        "prices", "market", "headway", "pacer", "shipping", "remembered",
    ),
    "coding": ("nodes", "bits", "wire", "tokens", "framing", "digest", "messages", "verifier_pb2", "commit_tokens"),
}  # fmt: skip
REST = "session"
"""Of the time: the session's own rules, its sequence, its statistics."""

Function = tuple[str, int, str]


def shares(scenario: Scenario) -> dict[str, float]:
    """Share of the brain's time by idea, REST included, in a run of `scenario`. A profiler makes calls dearer than they
    are, so small functions look somewhat larger."""
    profile = cProfile.Profile()
    with brain_profile(profile):
        run(scenario)
    spent = dict.fromkeys((*IDEAS, REST), 0.0)
    for function, (_, _, own, _, callers) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if _is_built_in(function):
            for caller, (_, _, inside, _) in callers.items():
                spent[_idea(caller)] += inside
        else:
            spent[_idea(function)] += own
    total = sum(spent.values())
    return {idea: seconds / total for idea, seconds in spent.items()}


def _is_built_in(function: Function) -> bool:
    return function[0] == "~"


def _idea(function: Function) -> str:
    file = PurePath(function[0]).stem
    return next((idea for idea, files in IDEAS.items() if file in files), REST)
