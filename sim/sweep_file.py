"""Sweeps as TOML files: a scenario and a table `[sweep]` that says what varies.

    [sweep]
    base = "wan50.toml"                      # optional: a scenario file that this one's tables are laid over
    combine = "product"                      # or "zip": all axes advance together

    [sweep.axes]
    "link.rtt_ms" = [10, 100, 600]
    "link.overrides.rate_up_kbps, link.overrides.rate_down_kbps" = [[20, 50], 100]
    strategy = [{ name = "plain" }, { name = "ours", params = { draft = "8" } }]

Keys joined by commas are one axis: a list gives each its own value, anything else goes to all. A table replaces the
section of that name.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from acespec.proto.errors import UsageError
from acespec.sim.scenario_file import Table, assign, parse_setting, read_tables, scenario_of
from acespec.sim.world.scenario import Scenario
from acespec.sim.world.strategies.registry import params_of

MOST_CELLS = 100_000
COMBINATIONS = ("product", "zip")


@dataclass(frozen=True, slots=True)
class Axis:
    """What varies along one direction: at each point, the keys have the values of one of `points`."""

    keys: tuple[str, ...]
    points: tuple[tuple[object, ...], ...]

    @property
    def name(self) -> str:
        """The keys, as the file joins them."""
        return ", ".join(self.keys)

    @property
    def labels(self) -> tuple[str, ...]:
        """Each point's values in words."""
        return tuple(_label(point) for point in self.points)


@dataclass(frozen=True, slots=True)
class Cell:
    """One scenario of a sweep; `point` says where it stands on each axis."""

    point: tuple[int, ...]
    scenario: Scenario
    labels: tuple[str, ...]

    @property
    def name(self) -> str:
        """Where it stands, in words."""
        return " / ".join(self.labels)


@dataclass(frozen=True, slots=True)
class Sweep:
    """All that is to be run, in order. `text` is the file's."""

    name: str
    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    text: str


def read_sweep(path: Path, settings: Sequence[str] = ()) -> Sweep:
    """The sweep of a file, with `KEY=VALUE` settings on top of its scenario. Every cell is checked.

    Raises:
        UsageError: the file, an axis or a cell makes no sense.
    """
    tables = read_tables(path)
    try:
        plan = _section(tables.pop("sweep", None))
        axes = tuple(_axis(name, values) for name, values in _axes(plan.get("axes")).items())
        if _combination(plan.get("combine", "product")) == "zip":
            axes = (_zipped(axes),)
        base = _based(tables, plan.get("base"), path)
        for setting in settings:
            assign(base, *_fixed(setting, axes))
        points = _points(axes)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    cells = tuple(_cell(base, axes, point, path) for point in points)
    return Sweep(path.stem, axes, cells, path.read_text(encoding="utf-8"))


def _section(plan: object) -> Table:
    if not isinstance(plan, dict):
        raise UsageError("there is no table [sweep]: acespec-sim run takes a scenario, sweep needs to know what varies")
    if unknown := sorted(set(plan) - {"base", "combine", "axes"}):
        raise UsageError(f"sweep has no key {unknown[0]}: it knows base, combine, axes")
    return plan


def _axes(axes: object) -> Table:
    if not isinstance(axes, dict) or not axes:
        raise UsageError('[sweep.axes] is empty: write what varies, such as "link.rtt_ms" = [10, 100]')
    return axes


def _axis(name: str, values: object) -> Axis:
    keys = tuple(key.strip() for key in name.split(","))
    if not isinstance(values, list) or not values:
        raise UsageError(f"sweep axis {name} is {values!r}: it must be a list (a key with dots stands in quotes)")
    return Axis(keys, tuple(_values(name, keys, value) for value in values))


def _values(name: str, keys: tuple[str, ...], value: object) -> tuple[object, ...]:
    if not isinstance(value, list):
        return (value,) * len(keys)
    if len(value) != len(keys):
        raise UsageError(f"sweep axis {name} has {value!r}: it must have one value for each of {len(keys)} keys")
    return tuple(value)


def _combination(value: object) -> str:
    if value not in COMBINATIONS:
        raise UsageError(f"sweep combine is {value!r}: it must be product or zip")
    return str(value)


def _based(tables: Table, base: object, path: Path) -> Table:
    """The file's tables laid over those of the scenario that it starts from."""
    if base is None:
        return tables
    if not isinstance(base, str):
        raise UsageError(f"sweep base is {base!r}: it must be the name of a scenario file, in quotes")
    below = read_tables(path.parent / base)
    if "sweep" in below:
        raise UsageError(f"sweep base is {base!r}, which is a sweep itself: it must be a scenario")
    below.pop("name", None)
    return _laid_over(below, tables)


def _laid_over(below: Table, above: Table) -> Table:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _laid_over(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def _zipped(axes: Sequence[Axis]) -> Axis:
    """One axis along which all advance together."""
    lengths = [len(axis.points) for axis in axes]
    if len(set(lengths)) > 1:
        raise UsageError(f"sweep zips axes of {', '.join(map(str, lengths))} values: they must have equally many")
    points = zip(*(axis.points for axis in axes), strict=True)
    return Axis(tuple(key for axis in axes for key in axis.keys), tuple(sum(point, ()) for point in points))


def _fixed(setting: str, axes: Sequence[Axis]) -> tuple[str, object]:
    key, value = parse_setting(setting)
    if any(key in axis.keys for axis in axes):
        raise UsageError(f"--set {setting}: {key} is an axis of the sweep")
    return key, value


def _points(axes: Sequence[Axis]) -> list[tuple[int, ...]]:
    count = math.prod(len(axis.points) for axis in axes)
    if count > MOST_CELLS:
        raise UsageError(f"sweep has {count} cells: it must have at most {MOST_CELLS}")
    return list(itertools.product(*(range(len(axis.points)) for axis in axes)))


def _cell(base: Table, axes: Sequence[Axis], point: tuple[int, ...], path: Path) -> Cell:
    table = copy.deepcopy(base)
    for key, value in _settings(axes, point):
        assign(table, key, copy.deepcopy(value))
    labels = tuple(axis.labels[at] for axis, at in zip(axes, point, strict=True))
    changes = [f"{axis.name} = {label}" for axis, label in zip(axes, labels, strict=True)]
    scenario = scenario_of(table, path, changes)
    try:
        _check(scenario)
    except UsageError as error:
        raise UsageError(f"{path} with {', '.join(changes)}: {error}") from error
    return Cell(point, scenario, labels)


def _check(scenario: Scenario) -> None:
    """What a scenario names is there: better said now than by each of a thousand cells."""
    scenario.link.spec()
    scenario.target.timing()
    params_of(scenario.strategy)
    _ = scenario.drafter.token_s


def _settings(axes: Sequence[Axis], point: Sequence[int]) -> Iterator[tuple[str, object]]:
    """Whole sections first: they replace, and single keys then change them."""
    pairs = [
        pair for axis, at in zip(axes, point, strict=True) for pair in zip(axis.keys, axis.points[at], strict=True)
    ]
    return iter(sorted(pairs, key=lambda pair: not isinstance(pair[1], dict)))


def _label(values: Sequence[object]) -> str:
    words = [_words(value) for value in values]
    return words[0] if len(set(words)) == 1 else ", ".join(words)


def _words(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if not isinstance(value, dict):
        return str(value)
    rest = [f"{key} {_words(item)}" for key, item in value.items() if key not in ("name", "params")]
    params = value.get("params", {})
    rest += [f"{key} {_words(item)}" for key, item in params.items()] if isinstance(params, dict) else []
    name = str(value.get("name", ""))
    return " ".join([name, f"({', '.join(rest)})" if rest and name else ", ".join(rest)]).strip()
