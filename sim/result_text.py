"""Results for a person: the figures of one, or of two side by side."""

from __future__ import annotations

from acespec.sim.figures import FIGURES, shown
from acespec.sim.world.result import Result

LIVE = "live"
"""What stands for the digest of events in the result of a live run, where there are none."""


def is_live(result: Result) -> bool:
    """Whether the result was measured on the live stack rather than computed in virtual time."""
    return result.digest == LIVE


def result_text(result: Result) -> str:
    """All figures, a line each."""
    width = max(len(figure.label) for figure in FIGURES.values())
    lines = [headline(result), ""]
    lines += [f"{figure.label:<{width}}  {shown(figure.of(result)):>8}" for figure in FIGURES.values()]
    return "\n".join([*lines, "", closing(result)])


def comparison_text(simulated: Result, live: Result) -> str:
    """The figures of the same scenario in virtual time and live, and live over simulated."""
    width = max(len(figure.label) for figure in FIGURES.values())
    lines = [headline(simulated), "", f"{'':<{width}}  {'sim':>8}  {'live':>8}  live / sim"]
    for figure in FIGURES.values():
        ours, theirs = figure.of(simulated), figure.of(live)
        lines.append(f"{figure.label:<{width}}  {shown(ours):>8}  {shown(theirs):>8}  {ratio_text(theirs, ours)}")
    return "\n".join([*lines, "", f"sim: {closing(simulated)}", f"live: {closing(live)}"])


def ratio_text(value: float, over: float) -> str:
    """The quotient, if there is one."""
    return f"{value / over:10.3f}" if over else f"{'-':>10}"


def headline(result: Result) -> str:
    """Which scenario, and how it went."""
    scenario = result.scenario
    load = scenario.load
    edges = "1 edge" if load.edges == 1 else f"{load.edges} edges"
    return (
        f"{scenario.name}: {scenario.strategy.name}, {edges}, seed {scenario.seed}: "
        f"{result.tokens} tokens, {sum(edge.turns for edge in result.edges)} of {load.edges * load.turns} turns ended"
    )


def closing(result: Result) -> str:
    """What the figures rest on."""
    if is_live(result):
        return f"{result.virtual_s:.1f} s on the live stack; bytes from the link's packet log"
    return (
        f"{result.virtual_s:.1f} s of virtual time, {result.events} events in {result.wall_s:.2f} s; "
        f"digest {result.digest}, version {result.version}"
    )
