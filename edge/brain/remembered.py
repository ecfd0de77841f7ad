"""An answer that holds until what it depends on changes: at every poll a session asks itself the same again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """The answer of `ask`, which depends on a state and nothing else, and leaves it as it is."""

    __slots__ = ("_answers", "_ask", "_state")

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._state: object = None
        self._answers: list[T] = []

    def answer(self, state: object) -> T:
        """The answer in `state`, which is what it depends on, told apart by `==`."""
        if not self._answers or state != self._state:
            self._answers = [self._ask()]
        self._state = state  # Though it be equal: the very same object is told apart fastest.
        return self._answers[0]
