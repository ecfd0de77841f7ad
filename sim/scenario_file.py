"""Scenarios as TOML files, and single keys set on top of one, by name: `link.kbps`, `strategy.params.draft`.

Two short forms stand in the table `link`, in files and for single keys: `kbps`, the rate of both directions, and
`rtt_ms`, twice the one-way delay. They become the link's overrides.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from acespec.proto.errors import UsageError
from acespec.sim.world.scenario import Scenario, scenario_from

Table = dict[str, object]


def read_scenario(path: Path, settings: Sequence[str] = ()) -> Scenario:
    """The scenario of a file, with `KEY=VALUE` settings on top. The file gives its name. Raises UsageError."""
    table = read_tables(path)
    if "sweep" in table:
        raise UsageError(f"{path} has a table [sweep]: acespec-sim sweep runs it, run takes one scenario")
    for setting in settings:
        assign(table, *parse_setting(setting))
    return scenario_of(table, path, settings)


def read_tables(path: Path) -> Table:
    """The tables of a scenario's or sweep's file, short forms written out. Raises UsageError."""
    try:
        return _expanded(_read_toml(path))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def scenario_of(table: Table, path: Path, changes: Sequence[str] = ()) -> Scenario:
    """The scenario of tables that came from `path`, beside which other files are looked for.

    Raises:
        UsageError: it makes no sense; the message names the file and what was changed of it.
    """
    try:
        return scenario_from({"name": path.stem} | table, path.parent)
    except UsageError as error:
        changed = f" with {', '.join(changes)}" if changes else ""
        raise UsageError(f"{path}{changed}: {error}") from error


def parse_setting(text: str) -> tuple[str, object]:
    """`KEY=VALUE`; the value as TOML has it, or else the bare word. Raises UsageError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {text!r}: write KEY=VALUE, such as link.kbps=50 or strategy.name=ours")
    return key.strip(), _parsed(value.strip())


def assign(table: Table, key: str, value: object) -> None:
    """Set `key`, a name with dots, to `value`; tables on the way are made. Raises UsageError."""
    section, _, name = key.rpartition(".")
    if section == "link" and name in _SHORT:
        for field, number in _SHORT[name](_number(name, value)).items():
            _put(table, f"link.overrides.{field}", number)
    else:
        _put(table, key, _as_text(value) if _is_text(key) else value)


def _put(table: Table, key: str, value: object) -> None:
    *sections, last = key.split(".")
    at = table
    for section in sections:
        inner = at.setdefault(section, {})
        if not isinstance(inner, dict):
            raise UsageError(f"scenario key {key}: {section} is no table but {inner!r}")
        at = inner
    at[last] = value


def _read_toml(path: Path) -> Table:
    """The tables of a TOML file. Raises UsageError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not TOML: {error}") from error


def _expanded(table: Table) -> Table:
    """The same with the short forms of `link` written out; what `overrides` says itself stays."""
    link = table.get("link")
    if not isinstance(link, dict) or not _SHORT.keys() & link.keys():
        return table
    plain = {key: value for key, value in link.items() if key not in _SHORT}
    overrides = plain.get("overrides", {})
    if not isinstance(overrides, dict):
        raise UsageError(f"scenario link overrides is {overrides!r}: it must be a table")
    short: Table = {}
    for key, expand in _SHORT.items():
        if key in link:
            short |= expand(_number(key, link[key]))
    return table | {"link": plain | {"overrides": short | overrides}}


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"scenario link {key} is {value!r}: it must be a number")
    return value


_SHORT: dict[str, Callable[[float], Table]] = {
    "kbps": lambda kbps: {"rate_up_kbps": kbps, "rate_down_kbps": kbps},
    "rtt_ms": lambda rtt: {"delay_ms": rtt / 2},
}


def _parsed(value: str) -> object:
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def _is_text(key: str) -> bool:
    """Whether the scenario has text there: numbers (`drafter.acceptance=0.8`) are then taken as text."""
    at: object = Scenario().as_json()
    for part in key.split("."):
        at = at.get(part) if isinstance(at, dict) else None
    return isinstance(at, str)


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
