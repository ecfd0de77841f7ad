"""Shares of edges below a value, one function a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from acespec.proto.errors import UsageError
from acespec.sim.plots import style
from acespec.sim.plots.grid import label_of, strategy_axis
from acespec.sim.sweep_store import Done, SweepData
from acespec.sim.world.result import EdgeResult

FEWEST_EDGES = 5
MOST_PANELS = 6
MARKS = 8
"""On a line, to tell it by more than its colour."""

Value = Callable[[EdgeResult], float | None]


def cdf(data: SweepData, value: Value, *, title: str, label: str) -> list[Figure]:
    """The share of edges at or below each value; a panel for each of some conditions, a colour for each strategy.

    Raises:
        UsageError: no cell has enough edges.
    """
    by = strategy_axis(data)
    rest = [number for number in range(len(data.axes)) if number != by]
    conditions: dict[str, dict[str, list[float]]] = {}
    for done in data.cells:
        if len(done.result.edges) >= FEWEST_EDGES:
            series = conditions.setdefault(label_of(data, done, rest), {})
            series.setdefault(_series(done, by), []).extend(_values(done, value))
    if not conditions:
        raise UsageError(f"nothing to plot: a distribution over edges needs cells with {FEWEST_EDGES} edges or more")
    chosen = _spread(list(conditions))
    names = list(dict.fromkeys(name for panel in chosen for name in conditions[panel]))
    figure, places = style.new_figure(chosen, f"{title} ({len(chosen)} of {len(conditions)} conditions)")
    for place, panel in zip(places, chosen, strict=True):
        for name, values in conditions[panel].items():
            ordered = sorted(values)
            shares = [(n + 1) / len(ordered) for n in range(len(ordered))]
            _draw(place, ordered, shares, names.index(name))
        place.set_xlabel(label)
        place.set_ylabel("share of edges")
        place.set_ylim(0, 1.02)
    style.add_legend(figure, names)
    return [figure]


def speed_cdf(data: SweepData) -> list[Figure]:
    """How decoding speed is spread over edges."""
    return cdf(data, lambda edge: edge.tokens_per_s, title="Decoding speed over edges", label="tokens/s")


def first_token_cdf(data: SweepData) -> list[Figure]:
    """How the time to the first token is spread over edges."""
    return cdf(data, lambda edge: edge.first_token_s, title="Time to the first token over edges", label="s")


def gap_cdf(data: SweepData) -> list[Figure]:
    """How the slow gaps between tokens are spread over edges."""
    return cdf(
        data, lambda edge: 1000 * edge.gap.p95, title="95th percentile of an edge's gaps between tokens", label="ms"
    )


def _draw(place: Axes, values: Sequence[float], shares: Sequence[float], number: int) -> None:
    every = max(1, len(values) // MARKS)
    colour, mark = style.colour(number), style.mark(number)
    place.step(values, shares, where="post", color=colour, marker=mark, markersize=4, markevery=every)


def _series(done: Done, by: int | None) -> str:
    return done.result.scenario.strategy.name if by is None else done.labels[by]


def _values(done: Done, value: Value) -> list[float]:
    return [number for edge in done.result.edges if (number := value(edge)) is not None]


def _spread(names: Sequence[str]) -> list[str]:
    """At most MOST_PANELS of them, from the first to the last."""
    if len(names) <= MOST_PANELS:
        return list(names)
    return [names[round(at * (len(names) - 1) / (MOST_PANELS - 1))] for at in range(MOST_PANELS)]
