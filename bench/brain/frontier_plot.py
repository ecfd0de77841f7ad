"""The frontier as a picture: a panel for each round trip and load, speed over the verifier's time per token.

`idle` is left out: where the verifier has time to spare it is `always`, and else between that and `never`. The dotted
line is the knee by the closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from acespec.bench.brain.frontier import Knee, Point
from acespec.proto.errors import UsageError
from acespec.sim.plots import style

Value = Callable[[Point], float]


def draw(points: Sequence[Point], knees: Sequence[Knee], folder: Path) -> None:
    """Write `frontier.png` and `on_schedule.png`. Raises UsageError if that cannot be done."""
    points = [point for point in points if point.policy != "idle"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}") from error
    _picture(points, knees, "Speed of a session", "tokens/s", lambda p: p.tokens_per_s, folder / "frontier.png")
    _picture(points, (), "Tokens on schedule", "percent", lambda p: 100 * p.on_schedule, folder / "on_schedule.png")


def series_of(point: Point) -> str:
    """What a point belongs to."""
    return f"{point.policy}, tree {point.tree}" if point.way == "ours" else point.way


def _picture(points: Sequence[Point], knees: Sequence[Knee], title: str, label: str, value: Value, path: Path) -> None:
    panels = list(dict.fromkeys((p.rtt_ms, p.load) for p in points))
    names = list(dict.fromkeys(series_of(p) for p in points))
    figure, places = style.new_figure([f"RTT {rtt:.0f} ms, {load:.0%} load" for rtt, load in panels], title)
    for place, panel in zip(places, panels, strict=True):
        for number, name in enumerate(names):
            own = [p for p in points if (p.rtt_ms, p.load) == panel and series_of(p) == name]
            _draw(place, sorted(own, key=lambda p: p.rate), value, number)
        for knee in [k for k in knees if (k.rtt_ms, k.load) == panel][:1]:
            place.axhline(knee.form, color="0.5", linestyle=":", linewidth=1)
        place.set_xlabel("verifier ms per token")
        place.set_ylabel(label)
        place.set_xlim(left=0)
    places[0].set_ylim(bottom=0)
    style.add_legend(figure, names)
    style.save(figure, path)


def _draw(place: Axes, points: Sequence[Point], value: Value, number: int) -> None:
    xs, ys = [p.verifier_ms for p in points], [value(p) for p in points]
    place.plot(xs, ys, "-", color=style.colour(number), marker=style.mark(number), markersize=4, linewidth=1.0)
