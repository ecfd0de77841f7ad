"""A chat without a terminal: questions line by line, answers as they are committed, all else on stderr."""

from __future__ import annotations

import sys
from asyncio import Runner
from collections.abc import Callable
from contextlib import aclosing

from acespec.edge.chat.face import Parts
from acespec.edge.completion import Completion, TextDelta
from acespec.edge.report import as_line
from acespec.edge.view import View

PROMPT = ">>> "


class PlainFace:
    """See `Face`. Nothing is read that was not asked for, and nothing is written but text."""

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty()

    def ask(self, runner: Runner) -> str | None:
        """See `Face.ask`; waits outside of the event loop, so that Ctrl-C is felt at once."""
        return read_line()

    async def answer(self, parts: Parts, view: Callable[[], View], shown: list[str]) -> Completion | None:
        """See `Face.answer`."""
        async with aclosing(parts):
            async for part in parts:
                match part:
                    case TextDelta():
                        shown.append(part.text)
                        sys.stdout.write(part.text)
                        sys.stdout.flush()
                    case Completion():
                        sys.stderr.write(f"\n{as_line(part)}")
                        return part
        return None

    def answered(self) -> None:
        """See `Face.answered`."""
        sys.stdout.write("\n")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """See `Face.note`."""
        sys.stderr.write(f"{text}\n")


def read_line() -> str | None:
    """A line of the input; None at its end."""
    if sys.stdin.isatty():
        try:
            return input(PROMPT)
        except EOFError:
            return None
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None
