"""Sweeps that nobody ran: one real result of a tiny world, its figures replaced as a test wants them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product

from acespec.sim.sweep_file import Axis
from acespec.sim.sweep_store import Done, SweepData
from acespec.sim.world.result import Result, Spread
from acespec.sim.world.scenario import LinkChoice, LoadSpec, Scenario, StrategySpec
from acespec.sim.world.world import run

Speed = Callable[[Mapping[str, object]], float]


@cache
def tiny_result(edges: int = 1) -> Result:
    """Of a plain run of a few tokens."""
    load = LoadSpec(edges=edges, tokens=8, prompt_tokens=4)
    return run(Scenario(duration_s=3.0, load=load, strategy=StrategySpec("plain")))


def swept(axes: Mapping[str, Sequence[object]], speed: Speed, *, edges: int = 1) -> SweepData:
    """A sweep over `axes` whose cells have the tokens/s that `speed` says of their values."""
    listed = tuple(Axis((key,), tuple((value,) for value in values)) for key, values in axes.items())
    cells = []
    for point in product(*(range(len(axis.points)) for axis in listed)):
        values = {axis.name: axis.points[at][0] for axis, at in zip(listed, point, strict=True)}
        labels = tuple(axis.labels[at] for axis, at in zip(listed, point, strict=True))
        cells.append(Done(point, labels, _result(values, speed(values), edges)))
    return SweepData("demo", "acespec-sim sweep demo.toml", "0.1.0", "[sweep]", listed, tuple(cells), (), ())


def _result(values: Mapping[str, object], speed: float, edges: int) -> Result:
    result = tiny_result(edges)
    overrides = {"delay_ms": float(str(values.get("link.rtt_ms", 100))) / 2}
    if "link.kbps" in values:
        overrides |= {"rate_up_kbps": float(str(values["link.kbps"])), "rate_down_kbps": 2e6}
    scenario = replace(
        result.scenario,
        seed=int(str(values.get("seed", 1))),
        link=LinkChoice(overrides=overrides),
        strategy=StrategySpec(str(values.get("strategy.name", "plain"))),
    )
    spread = Spread(speed, speed, speed, speed, speed)
    own = tuple(replace(edge, tokens_per_s=speed + edge.edge) for edge in result.edges)
    return replace(result, scenario=scenario, tokens_per_s=spread, edges=own)
