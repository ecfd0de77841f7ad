"""Figures over what varied, one function a picture."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from acespec.proto.errors import UsageError
from acespec.sim.figures import GAIN, find_figure
from acespec.sim.plots import style
from acespec.sim.plots.grid import Point, Quantity, Series, find_quantity, panels, strategy_axis, values_of
from acespec.sim.sweep_store import SweepData

MOST_PANELS = 12
WIDE = 5.0
"""A horizontal axis that spans more than this factor is logarithmic."""


def curves(
    data: SweepData,
    x: str,
    figures: Sequence[str],
    *,
    by: int | None,
    title: str,
    label: str,
    lines: Sequence[str] = (),
) -> list[Figure]:
    """Pictures of up to MOST_PANELS panels: a colour and mark for each series, a kind of line for each of `figures`.

    Args:
        x: see `find_quantity`.
        by: number of the axis that tells series apart.
        label: of the vertical axis.
        lines: what each figure is called, if there are several.

    Raises:
        UsageError: no such quantity or figure, or nothing to show.
    """
    quantity = find_quantity(x, data)
    shown = [panels(data, quantity, values_of(name, data), by) for name in figures]
    names = list(dict.fromkeys(panel for each in shown for panel in each))
    if not names:
        raise UsageError(f"nothing to plot: no finished cell has {' or '.join(figures)}")
    series = list(dict.fromkeys(name for each in shown for panel in each.values() for name in panel))
    pages = [names[at : at + MOST_PANELS] for at in range(0, len(names), MOST_PANELS)]
    return [_page(page, shown, series, quantity, title, label, lines) for page in pages]


def _page(
    names: Sequence[str],
    shown: Sequence[dict[str, Series]],
    series: Sequence[str],
    quantity: Quantity,
    title: str,
    label: str,
    lines: Sequence[str],
) -> Figure:
    figure, places = style.new_figure(names, title)
    for place, name in zip(places, names, strict=True):
        for line, each in zip(style.LINES, shown, strict=False):
            for label_of_series, points in each.get(name, {}).items():
                _draw(place, points, series.index(label_of_series), line)
        _scale(place, [point.x for each in shown for points in each.get(name, {}).values() for point in points])
        place.set_xlabel(quantity.label)
        place.set_ylabel(label)
    places[0].set_ylim(bottom=0)  # Shared by all, and only now is the largest value known.
    style.add_legend(figure, series, lines)
    return figure


def _draw(place: Axes, points: Sequence[Point], number: int, line: str) -> None:
    xs = [point.x for point in points]
    colour = style.colour(number)
    place.plot(xs, [p.mean for p in points], line, color=colour, marker=style.mark(number), markersize=4, linewidth=1.4)
    if any(point.least < point.most for point in points):
        low, high = [p.least for p in points], [p.most for p in points]
        place.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)


def _scale(place: Axes, xs: Sequence[float | str]) -> None:
    numbers = [x for x in xs if isinstance(x, float)]
    if len(numbers) < len(xs) or not numbers or min(numbers) <= 0 or max(numbers) / min(numbers) < WIDE:
        return
    ticks = sorted(set(numbers))
    place.set_xscale("log")
    place.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=45 if len(ticks) > 5 else 0)
    place.minorticks_off()


def one_figure(data: SweepData, x: str, y: str, by: int | None) -> list[Figure]:
    """Any figure over anything."""
    label = "tokens/s over plain decoding's" if y == GAIN else find_figure(y).label
    return curves(data, x, [y], by=by, title=f"{data.name}: {label.partition(',')[0]}", label=label)


def tokens_over(x: str, data: SweepData) -> list[Figure]:
    """Decoding speed of an edge over `rtt`, `kbps` or `load`."""
    return curves(
        data, x, ["tokens_per_s"], by=strategy_axis(data), title="Decoding speed of an edge", label="tokens/s"
    )


def gain_over(x: str, data: SweepData) -> list[Figure]:
    """Decoding speed over that of plain decoding under the same conditions. Raises UsageError if that was not run."""
    return curves(
        data, x, [GAIN], by=strategy_axis(data), title="Gain over plain decoding", label="tokens/s over plain's"
    )


def verifier_time_over(x: str, data: SweepData) -> list[Figure]:
    """What a token costs the verifier."""
    return curves(
        data,
        x,
        ["verifier_ms_per_token"],
        by=strategy_axis(data),
        title="Verifier time per token",
        label="ms per token",
    )


def bytes_over(x: str, data: SweepData) -> list[Figure]:
    """IP bytes a token, up and down."""
    return curves(
        data,
        x,
        ["up_bytes_per_token", "down_bytes_per_token"],
        by=strategy_axis(data),
        title="IP bytes per token: headers, ACKs and connection set-up included",
        label="bytes per token",
        lines=("up", "down"),
    )


def gaps_over(x: str, data: SweepData) -> list[Figure]:
    """How long a reader waits between tokens."""
    return curves(
        data,
        x,
        ["gap_p50_ms", "gap_p95_ms", "gap_p99_ms"],
        by=strategy_axis(data),
        title="Gap between consecutive tokens",
        label="ms",
        lines=("median", "95th percentile", "99th percentile"),
    )
