"""A `LinkSpec` from plain tables, as JSON and TOML give them: every field, strict types, errors that name the field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from acespec.proto.errors import UsageError
from acespec.sim.delay import DelayStep
from acespec.sim.loss import GilbertElliott
from acespec.sim.outages import OnOff, Outage
from acespec.sim.rate import MarkovRate, RateState, RateTrace, VaryingRate
from acespec.sim.spec import LinkSpec

REQUIRED = ("rate_up_kbps", "rate_down_kbps", "delay_ms")
MEANS = {"rate_up": "rate_up_kbps", "rate_down": "rate_down_kbps", "burst_loss": "loss_percent"}
"""A model, and the field that states its mean."""

_Data = TypeVar("_Data", RateTrace, RateState, MarkovRate, GilbertElliott, OnOff, Outage, DelayStep)


def spec_from_table(table: object, base: LinkSpec | None = None) -> LinkSpec:
    """Reads what `LinkSpec.as_json` gives, or a part of it that overrides `base`. Null keeps the default.

    A model (`rate_up`, `rate_down`, `burst_loss`) sets the field of its mean, if that is not there, and a constant
    replaces a model of the base. Raises UsageError.
    """
    given = {field: value for field, value in _table("a link", table, _READERS).items() if value is not None}
    values: dict[str, Any] = {field: _READERS[field](field, value) for field, value in given.items()}
    for model, mean in MEANS.items():
        if model in values:
            values.setdefault(mean, _mean_of(values[model]))
        elif mean in values:
            values[model] = None
    if base is not None:
        return replace(base, **values)
    if missing := [field for field in REQUIRED if field not in values]:
        raise UsageError(f"the link has no {missing[0]}: it needs {', '.join(REQUIRED)}, or a preset to start from")
    return LinkSpec(**values)


def _mean_of(model: VaryingRate | GilbertElliott) -> float:
    return model.mean_percent if isinstance(model, GilbertElliott) else model.mean_kbps


def _number(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(field, value, "a number")
    return value


def _whole(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(field, value, "a whole number")
    return value


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong(field, value, "true or false")
    return value


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(field, value, "a text in quotes")
    return value


def _rate(field: str, value: object) -> VaryingRate:
    table = _table(field, value, ("points", "period_s", "states"))
    if "states" in table and len(table) == 1:
        states = _list(f"{field} states", table["states"])
        return MarkovRate(tuple(_numbers_into(RateState, f"{field} state", state) for state in states))
    if "points" in table and "period_s" in table and len(table) == 2:
        points = _list(f"{field} points", table["points"])
        return RateTrace(
            tuple(_point(field, point) for point in points), _number(f"{field} period_s", table["period_s"])
        )
    raise UsageError(f"link {field} needs either states, or points and period_s")


def _point(field: str, value: object) -> tuple[float, float]:
    pair = _list(f"{field} point", value)
    if len(pair) != 2:
        raise _wrong(f"{field} point", value, "[seconds, kbps]")
    return _number(f"{field} point", pair[0]), _number(f"{field} point", pair[1])


def _outages(field: str, value: object) -> tuple[Outage, ...]:
    return tuple(
        Outage.parse(entry) if isinstance(entry, str) else _numbers_into(Outage, f"{field} entry", entry)
        for entry in _list(field, value)
    )


def _delay_steps(field: str, value: object) -> tuple[DelayStep, ...]:
    return tuple(
        DelayStep.parse(entry) if isinstance(entry, str) else _numbers_into(DelayStep, f"{field} entry", entry)
        for entry in _list(field, value)
    )


def _numbers_into(kind: type[_Data], field: str, value: object) -> _Data:
    """A dataclass of numbers from a table of the same fields."""
    names = [part.name for part in fields(kind)]
    table = _table(field, value, names)
    numbers = {name: _number(f"{field} {name}", number) for name, number in table.items()}
    try:
        return kind(**numbers)  # type: ignore[arg-type] # all fields of all kinds are numbers but those read elsewhere
    except TypeError:
        missing = next(name for name in names if name not in numbers)
        raise UsageError(f"link {field} has no {missing}: its fields are {', '.join(names)}") from None


def _table(field: str, value: object, known: Sequence[str] | Mapping[str, object]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _wrong(field, value, f"a table of {', '.join(known)}")
    for key in value:
        if key not in known:
            raise UsageError(f"{field} has no field {key!r}: its fields are {', '.join(known)}")
    return value


def _list(field: str, value: object) -> list[object]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(field, value, "a list")
    return list(value)


def _wrong(field: str, value: object, wanted: str) -> UsageError:
    return UsageError(f"link {field} is {value!r}: it must be {wanted}")


_READERS: dict[str, Callable[[str, object], object]] = {
    "name": _text,
    "rate_up_kbps": _number,
    "rate_down_kbps": _number,
    "rate_up": _rate,
    "rate_down": _rate,
    "delay_ms": _number,
    "delay_steps": _delay_steps,
    "jitter_ms": _number,
    "loss_percent": _number,
    "burst_loss": lambda field, value: _numbers_into(GilbertElliott, field, value),
    "queue_bytes": _whole,
    "mtu": _whole,
    "overhead_bytes": _whole,
    "outages": _outages,
    "on_off": lambda field, value: _numbers_into(OnOff, field, value),
    "half_duplex": _flag,
    "mode": _text,
    "burst_bytes": _whole,
    "tcp_backoff": _flag,
    "seed": _whole,
}
