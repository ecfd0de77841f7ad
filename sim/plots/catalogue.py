"""The pictures that a sweep gives without being asked: each that has something to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from matplotlib.figure import Figure

from acespec.sim.plots import curves, distributions
from acespec.sim.plots.grid import PLAIN, QUANTITIES, find_quantity, strategy_axis
from acespec.sim.sweep_store import SweepData

OVER: dict[str, Callable[[str, SweepData], list[Figure]]] = {
    "tokens_per_s": curves.tokens_over,
    "gain": curves.gain_over,
    "verifier_time": curves.verifier_time_over,
    "bytes": curves.bytes_over,
    "gaps": curves.gaps_over,
}
DISTRIBUTIONS: dict[str, Callable[[SweepData], list[Figure]]] = {
    "cdf_tokens_per_s": distributions.speed_cdf,
    "cdf_first_token": distributions.first_token_cdf,
    "cdf_gaps": distributions.gap_cdf,
}


def standard_plots(data: SweepData) -> Iterator[tuple[str, Figure]]:
    """Names and pictures; pages after the first are numbered."""
    for x in xs_of(data):
        for name, draw in OVER.items():
            if name != "gain" or _has_plain(data):
                yield from _numbered(f"{name}_over_{x}", draw(x, data))
    if any(len(done.result.edges) >= distributions.FEWEST_EDGES for done in data.cells):
        for name, draw_cdf in DISTRIBUTIONS.items():
            yield from _numbered(name, draw_cdf(data))


def xs_of(data: SweepData) -> list[str]:
    """What of `rtt`, `kbps` and `load` varied; else the first axis that is not the strategies'."""
    varied = [name for name, quantity in QUANTITIES.items() if len({quantity.of(done) for done in data.cells}) > 1]
    if varied or not data.cells:
        return varied
    others = [axis.keys[0] for number, axis in enumerate(data.axes) if number != strategy_axis(data)]
    return [find_quantity(name, data).name for name in others[:1] or [data.axes[0].keys[0]]]


def _has_plain(data: SweepData) -> bool:
    names = {done.result.scenario.strategy.name for done in data.cells}
    return PLAIN in names and len(names) > 1 and strategy_axis(data) is not None


def _numbered(name: str, pages: list[Figure]) -> Iterator[tuple[str, Figure]]:
    for number, page in enumerate(pages, 1):
        yield name if number == 1 else f"{name}_{number}", page
