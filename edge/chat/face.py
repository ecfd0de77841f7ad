"""What a chat needs of the place where it is held: a plain pipe or a terminal."""

from __future__ import annotations

from asyncio import Runner
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from acespec.edge.completion import Completion, TextDelta
from acespec.edge.view import View

Parts = AsyncGenerator[TextDelta | Completion, None]
"""What `Client.stream` yields."""


class Face(Protocol):
    """Asks questions and shows answers.

    Attributes:
        interactive: a person sits there: slips are told, and an answer that fails does not end the chat.
    """

    interactive: bool

    def ask(self, runner: Runner) -> str | None:
        """The next line; None at the end of the input.

        Raises:
            KeyboardInterrupt: Ctrl-C.
        """

    async def answer(self, parts: Parts, view: Callable[[], View], shown: list[str]) -> Completion | None:
        """Show an answer as it comes; its pieces are put into `shown`. None if it was cut off."""

    def answered(self) -> None:
        """The answer is over, however it came to that."""

    def note(self, text: str) -> None:
        """Say something that is no part of the conversation."""
