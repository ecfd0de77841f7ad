"""Records of a watched session as JSON objects and back. What has its default value is left out.

{"t": 1.25, "kind": "commit", "bytes": 14, ...}
"""

from __future__ import annotations

import dataclasses
import json
import math
from functools import cache
from types import UnionType
from typing import TypeAlias, cast, get_args, get_origin, get_type_hints

from acespec.edge import watch
from acespec.proto.errors import UsageError

Plain: TypeAlias = "dict[str, Plain] | list[Plain] | str | int | float | bool | None"

KINDS: dict[str, type[watch.Happening]] = {
    "turn": watch.TurnStarted,
    "up": watch.Sent,
    "opened": watch.Served,
    "commit": watch.CommitSeen,
    "job": watch.JobGiven,
    "draft": watch.Drafted,
    "decision": watch.DecisionMade,
    "reopened": watch.ReopenedBecause,
    "outage": watch.Outage,
    "abandoned": watch.Abandoned,
}
NAMES = {record: kind for kind, record in KINDS.items()}
DIGITS = 6
"""Significant digits of what is no whole number; times have microseconds anyway."""
MOST = 1e300
_ENCODE = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


def line_of(seconds: float, session: int, happening: watch.Happening) -> str:
    """The line of a trace, its end included."""
    head: dict[str, Plain] = {"t": round(seconds, 6), "kind": NAMES[type(happening)]}
    if session:
        head["session"] = session
    return _ENCODE(head | _fields(happening)) + "\n"


def happening_of(kind: str, fields: dict[str, Plain]) -> watch.Happening | None:
    """What `line_of` was given; None of a kind that this version does not know. Fields it does not know are left out.

    Raises:
        UsageError: a field is missing or is not what it should be.
    """
    record = KINDS.get(kind)
    return None if record is None else cast("watch.Happening", _record(record, fields))


def _fields(record: object) -> dict[str, Plain]:
    kind: type = type(record)
    values = ((name, getattr(record, name), default) for name, default in _defaults(kind))
    return {name: _plain(value) for name, value, default in values if value != default}


@cache
def _defaults(record: type) -> tuple[tuple[str, object], ...]:
    """Names and defaults of the fields; a field without one never equals its own."""
    return tuple((field.name, field.default) for field in dataclasses.fields(record))


def _plain(value: object) -> Plain:
    if isinstance(value, int | str) or value is None:
        return value
    if isinstance(value, float):
        return float(f"{value if math.isfinite(value) else _bounded(value):.{DIGITS}g}")
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return _fields(value)


def _bounded(value: float) -> float:
    """JSON has neither infinity nor NaN."""
    return 0.0 if math.isnan(value) else max(-MOST, min(MOST, value))


@cache
def _hints(record: type) -> dict[str, object]:
    return get_type_hints(record)


def _record(record: type, given: dict[str, Plain]) -> object:
    values = {name: _value(name, hint, given[name]) for name, hint in _hints(record).items() if name in given}
    try:
        return record(**values)
    except TypeError as error:
        raise UsageError(f"a record lacks something: {error}") from error


def _value(name: str, hint: object, value: Plain) -> object:
    if get_origin(hint) is UnionType:
        return None if value is None else _value(name, get_args(hint)[0], value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint in (int, str, bool) and type(value) is hint:
        return value
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_value(name, get_args(hint)[0], item) for item in value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _record(hint, value)
    raise UsageError(f"{name} is {json.dumps(value)[:60]}, which it cannot be")
