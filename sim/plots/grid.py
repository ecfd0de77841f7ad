"""A sweep's cells as a picture needs them: panels, in each some series, in each series points over x.

Of the axes of a sweep, those that x follows become the horizontal axis, one tells series apart, seeds are averaged, and
every combination of the others gets a panel of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from acespec.proto.errors import UsageError
from acespec.sim.figures import GAIN, Figure, find_figure
from acespec.sim.sweep_file import Axis
from acespec.sim.sweep_store import Done, SweepData
from acespec.sim.world.scenario import Scenario

PLAIN = "plain"
SEED = "seed"
X = float | str


@dataclass(frozen=True, slots=True)
class Quantity:
    """What can stand on a horizontal axis: a number, or a text where there is none."""

    name: str
    label: str
    of: Callable[[Done], X]


@dataclass(frozen=True, slots=True)
class Point:
    """Over seeds: mean, least and most."""

    x: X
    mean: float
    least: float
    most: float


Series = Mapping[str, Sequence[Point]]
"""Points in the order of x, by the label of the series."""


def find_quantity(name: str, data: SweepData) -> Quantity:
    """`rtt`, `kbps`, `load`, or an axis of the sweep by its name or the end of it. Raises UsageError."""
    if name in QUANTITIES:
        return QUANTITIES[name]
    at = find_axis(name, data)
    return Quantity(name, plain_name(data.axes[at]), lambda done: _number(done.labels[at]))


def find_axis(name: str, data: SweepData) -> int:
    """The number of the axis of that name, or with a key of that name or end. Raises UsageError that lists them."""
    for number, axis in enumerate(data.axes):
        if name == axis.name or any(key == name or key.endswith(f".{name}") for key in axis.keys):
            return number
    names = ", ".join(axis.name for axis in data.axes)
    raise UsageError(f"the sweep has no axis {name!r}: choose one of {names}, or {', '.join(QUANTITIES)}")


def strategy_axis(data: SweepData) -> int | None:
    """The axis along which strategies change, if there is one."""
    return next(
        (n for n, axis in enumerate(data.axes) if any(key.split(".")[0] == "strategy" for key in axis.keys)), None
    )


def plain_name(axis: Axis) -> str:
    """An axis in few words: its first key's last part."""
    return axis.keys[0].rpartition(".")[2].replace("_", " ")


def values_of(name: str, data: SweepData) -> Callable[[Done], float | None]:
    """What gives a cell's figure; None where it has none (a gain where plain decoding was not run)."""
    if name == GAIN:
        return gain_over_plain(data)
    figure: Figure = find_figure(name)
    return lambda done: figure.of(done.result)


def gain_over_plain(data: SweepData) -> Callable[[Done], float | None]:
    """Tokens/s over those of plain decoding where everything but the strategy is the same. Raises UsageError."""
    strategies = strategy_axis(data)
    plain = {
        condition(done, strategies): done.result.tokens_per_s.mean
        for done in data.cells
        if done.result.scenario.strategy.name == PLAIN
    }
    if strategies is None or not plain:
        raise UsageError(f"{GAIN} compares with plain decoding: let the sweep have an axis with strategy {PLAIN}")

    def gain(done: Done) -> float | None:
        base = plain.get(condition(done, strategies))
        return done.result.tokens_per_s.mean / base if base else None

    return gain


def condition(done: Done, strategies: int | None) -> tuple[int, ...]:
    """Where a cell stands on all axes but that of the strategies."""
    return tuple(at for number, at in enumerate(done.point) if number != strategies)


def panels(data: SweepData, x: Quantity, value: Callable[[Done], float | None], by: int | None) -> dict[str, Series]:
    """Series by the label of their panel, which is empty if there is but one."""
    rest = [n for n in range(len(data.axes)) if n != by and not _follows(x, n, data) and not _is_seed(data.axes[n])]
    found: dict[str, dict[str, dict[X, list[float]]]] = {}
    for done in data.cells:
        number = value(done)
        if number is not None:
            series = found.setdefault(label_of(data, done, rest), {}).setdefault(
                "" if by is None else done.labels[by], {}
            )
            series.setdefault(x.of(done), []).append(number)
    return {panel: {name: _points(at) for name, at in series.items()} for panel, series in found.items()}


def label_of(data: SweepData, done: Done, axes: Iterable[int]) -> str:
    """Where a cell stands on some axes, in words."""
    return ", ".join(in_words(data.axes[n], done.labels[n]) for n in axes)


def in_words(axis: Axis, label: str) -> str:
    """One point of an axis."""
    words = _WORDS.get(axis.keys[0])
    return words.format(label) if words else f"{plain_name(axis)} {label}"


_WORDS = {
    "link.rtt_ms": "RTT {} ms",
    "link.kbps": "{} Kbps",
    "link.preset": "{}",
    "drafter.acceptance": "acceptance {}",
    "load.edges": "edges {}",
    "target.target_rate": "{} tokens/s wanted",
    "target.free_run": "free run {}",
    "strategy": "{}",
    "strategy.name": "{}",
}


def _points(at: Mapping[X, list[float]]) -> list[Point]:
    points = [Point(x, sum(values) / len(values), min(values), max(values)) for x, values in at.items()]
    if all(isinstance(point.x, float) for point in points):
        points.sort(key=lambda point: (float(point.x), point.mean))
    return points


def _follows(x: Quantity, axis: int, data: SweepData) -> bool:
    """Whether x changes along that axis."""
    seen: dict[tuple[int, ...], X] = {}
    return any(seen.setdefault(condition(done, axis), x.of(done)) != x.of(done) for done in data.cells)


def _is_seed(axis: Axis) -> bool:
    return axis.keys == (SEED,)


def _number(label: str) -> X:
    try:
        return float(label)
    except ValueError:
        return label


def _of_scenario(of: Callable[[Scenario], float]) -> Callable[[Done], X]:
    return lambda done: float(of(done.result.scenario))


def _slower(scenario: Scenario) -> float:
    spec = scenario.link.spec()
    return min(spec.rate_up_kbps, spec.rate_down_kbps)


QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("rtt", "round trip time of the link, ms", _of_scenario(lambda s: s.link.spec().rtt_ms)),
        Quantity("kbps", "rate of the slower direction, Kbps", _of_scenario(_slower)),
        Quantity("load", "edges on one verifier", _of_scenario(lambda s: s.load.edges)),
    )
}
