"""A `Scenario` from plain tables: strict keys and types, errors that name section and key."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TypeVar, get_args, get_origin, get_type_hints

from acespec.proto.errors import UsageError
from acespec.sim.world.scenario import Scenario

_Part = TypeVar("_Part")
_WORDS = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false", dict: "a table"}
_FILES = {"link": ("file",), "target": ("profile", "ids"), "drafter": ("acceptance",)}
"""Keys that may name files."""


def read_scenario(table: Mapping[str, object], folder: Path | None) -> Scenario:
    """See `scenario_from`."""
    scenario = _read(Scenario, table, "")
    if "file" in _section(table, "link") and "preset" in _section(table, "link"):
        _refuse_both(_section(table, "link"))
    return scenario if folder is None else _found(scenario, folder)


def _refuse_both(link: Mapping[str, object]) -> None:
    if link["file"] is not None and link["preset"] not in (None, "wan50"):
        raise UsageError("scenario link has both file and preset: name the preset in the file, or leave one out")


def _section(table: Mapping[str, object], name: str) -> Mapping[str, object]:
    section = table.get(name)
    return section if isinstance(section, Mapping) else {}


def _read(kind: type[_Part], table: object, where: str) -> _Part:
    if not isinstance(table, Mapping):
        raise _wrong(where.strip(), table, "a table")
    hints = get_type_hints(kind)
    known = [part.name for part in fields(kind)]  # type: ignore[arg-type] # only dataclasses come here
    values = {}
    for key, value in table.items():
        if key not in known:
            raise UsageError(f"scenario has no {where}{key}: here it knows {', '.join(known)}")
        values[key] = _value(hints[key], value, f"{where}{key}")
    return kind(**values)


def _value(hint: object, value: object, key: str) -> object:
    if isinstance(hint, type) and is_dataclass(hint):
        return _read(hint, value, f"{key} ")
    if isinstance(hint, types.UnionType):
        if value is None and type(None) in get_args(hint):
            return None
        wanted = next(each for each in get_args(hint) if each is not type(None))
        return _value(wanted, value, key)
    if get_origin(hint) is not None:
        return _mapping(value, key, plain=object not in get_args(hint))
    return _plain(hint, value, key)


def _mapping(value: object, key: str, plain: bool) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise _wrong(key, value, _WORDS[dict])
    for name, item in value.items():
        if plain and not isinstance(item, str | int | float | bool):
            raise _wrong(f"{key} {name}", item, "a text, a number, true or false")
    return dict(value)


def _plain(hint: object, value: object, key: str) -> object:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    raise _wrong(key, value, _WORDS.get(hint, "something else"))  # type: ignore[call-overload]


def _found(scenario: Scenario, folder: Path) -> Scenario:
    """Names of files beside the scenario become paths."""
    sections: dict[str, object] = {}
    for section, keys in _FILES.items():
        part = getattr(scenario, section)
        names = {key: str(folder / name) for key in keys if (name := getattr(part, key)) and (folder / name).is_file()}
        sections[section] = replace(part, **names)
    return replace(scenario, **sections)  # type: ignore[arg-type] # each section is replaced by one of its kind


def _wrong(key: str, value: object, wanted: str) -> UsageError:
    return UsageError(f"scenario {key} is {value!r}: it must be {wanted}")
