"""The members of a request body. Each is taken once, by name and type; what nobody has taken is refused by name.

A member that is null counts as not given, as in OpenAI's API.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from acespec.edge.proxy.errors import ApiError, not_served, refused


class Fields:
    """`body`'s members; messages put `path` before their names. Every reader raises ApiError, naming the member."""

    def __init__(self, body: Mapping[str, object], path: str = "") -> None:
        self._left = {name: value for name, value in body.items() if value is not None}
        self._path = path

    def given(self, name: str) -> bool:
        """True if the member is there and was not taken yet."""
        return name in self._left

    def take(self, name: str) -> object:
        """The member as it is; None if it is not there."""
        return self._left.pop(name, None)

    def ignore(self, *names: str) -> None:
        """These change nothing here."""
        for name in names:
            self._left.pop(name, None)

    def number(self, name: str, default: float, low: float = -math.inf, high: float = math.inf) -> float:
        """A finite number within the bounds."""
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
            raise self._wrong(name, "a number", value)
        if not low <= value <= high:
            raise self._outside(name, value, low, high)
        return float(value)

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number within the bounds."""
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "a whole number", value)
        if not low <= value <= high:
            raise self._outside(name, value, low, high)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        value = self.take(name)
        return default if value is None else self._checked(name, value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A string, or several; empty if there is none."""
        value = self.take(name)
        if value is None:
            return ()
        items: Sequence[object] = value if isinstance(value, list) else [value]
        return tuple(self._checked(name, item) for item in items)

    def integers(self, name: str, limit: int) -> tuple[int, ...]:
        """Whole numbers from 0 to below `limit`."""
        value = self.take(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self._wrong(name, "a list of whole numbers", value)
        return tuple(whole(item, self._path + name, limit) for item in value)

    def members(self, name: str) -> Fields:
        """The members of an object; none if it is not there."""
        return Fields(self.mapping(name), f"{self._path}{name}.")

    def mapping(self, name: str) -> dict[str, object]:
        """An object; an empty one if it is not there."""
        value = self.take(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._wrong(name, "an object", value)
        return {str(key): item for key, item in value.items()}

    def nothing_but(self, name: str, values: Iterable[object]) -> None:
        """Refuse the member unless it has one of `values`: those ask for nothing."""
        if self.given(name) and self.take(name) not in list(values):
            raise not_served(self._path + name)

    def nothing_left(self) -> None:
        """Refuse the first member that nobody has taken."""
        for name in self._left:
            raise not_served(self._path + name)

    def _checked(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            raise self._wrong(name, "a string", value)
        return sound(value, self._path + name)

    def _wrong(self, name: str, wanted: str, value: object) -> ApiError:
        path = self._path + name
        return refused(f"{path} has to be {wanted}, not {_shown(value)}", path, "invalid_type")

    def _outside(self, name: str, value: float, low: float, high: float) -> ApiError:
        path = self._path + name
        return refused(f"{path} {value} is outside {low} .. {high}", path, "invalid_value")


def whole(value: object, path: str, limit: int) -> int:
    """`value`, if it is a whole number from 0 to below `limit`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise refused(f"{path} has to hold whole numbers, not {_shown(value)}", path, "invalid_type")
    if not 0 <= value < limit:
        raise refused(f"{path}: {value} is outside 0 .. {limit - 1}", path, "invalid_value")
    return value


def sound(text: str, path: str) -> str:
    """`text`, if it can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        raise refused(f"{path} holds half a character (a lone surrogate) at {fault.start}", path) from fault
    return text


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
