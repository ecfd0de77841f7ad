"""A chat on a terminal: guesses dimmed behind what is final, an even flow, a status line, an editor for questions."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio import Runner
from collections.abc import Callable
from contextlib import aclosing, suppress
from datetime import datetime

from acespec.edge.chat.cells import harmless
from acespec.edge.chat.face import Parts
from acespec.edge.chat.flow import Flow
from acespec.edge.chat.held_logs import held_logs
from acespec.edge.chat.keyboard import silent_keys
from acespec.edge.chat.screen import AHEAD_ROWS, STATUS, Screen, Status, painted
from acespec.edge.chat.status import status_of
from acespec.edge.chat.tally import short_line
from acespec.edge.completion import Completion, TextDelta
from acespec.edge.view import View

FRAME_S = 1 / 25
STATUS_S = 0.25
"""The figures change too fast to be read otherwise."""

ReadLine = Callable[[Runner], str | None]


class LiveFace:
    """See `Face`. `read` is the editor."""

    interactive = True

    def __init__(self, read: ReadLine) -> None:
        self._read = read

    def ask(self, runner: Runner) -> str | None:
        """See `Face.ask`."""
        return self._read(runner)

    async def answer(self, parts: Parts, view: Callable[[], View], shown: list[str]) -> Completion | None:
        """See `Face.answer`."""
        try:
            with held_logs(), silent_keys():
                done = await _Answer(view, shown).show(parts)
        except asyncio.CancelledError:
            self.note("stopped")
            raise
        if done is not None:
            self.note(short_line(done))
        return done

    def answered(self) -> None:
        """See `Face.answered`."""

    def note(self, text: str) -> None:
        """See `Face.note`."""
        _write(painted(harmless(text), STATUS) + "\r\n")


class _Answer:
    """One answer: text comes in at its own times, frames are drawn at theirs."""

    def __init__(self, view: Callable[[], View], shown: list[str]) -> None:
        self._view = view
        self._shown = shown
        self._flow = Flow()
        self._screen = Screen(_write, terminal_size)
        self._asked = time.monotonic()
        self._first: float | None = None
        self._status = Status("")
        self._status_until = 0.0
        self._told: tuple[bool, bool] | None = None

    async def show(self, parts: Parts) -> Completion | None:
        self._screen.begin()
        painter = asyncio.create_task(self._paint())
        try:
            async with aclosing(parts):
                async for part in parts:
                    match part:
                        case TextDelta():
                            self._take(part.text)
                        case Completion():
                            return part
            return None
        finally:
            painter.cancel()
            with suppress(asyncio.CancelledError):
                await painter
            self._screen.end(self._flow.rest())

    def _take(self, text: str) -> None:
        now = time.monotonic()
        if text and self._first is None:
            self._first = now
        self._shown.append(text)
        self._flow.push(now, text)

    async def _paint(self) -> None:
        while True:
            self._frame(time.monotonic())
            await asyncio.sleep(FRAME_S)

    def _frame(self, now: float) -> None:
        view = self._view()
        state = (self._first is None, view.waiting_since is None)
        if now >= self._status_until or state != self._told:
            self._told, self._status_until = state, now + STATUS_S
            width = terminal_size()[0]
            self._status = status_of(view, now, datetime.now(), asked=self._asked, first=self._first, width=width)
        text = self._flow.due(now)
        ahead = self._flow.waiting + view.provisional_text
        self._screen.show(text, ahead, self._status, ahead_rows=_rows_for_guesses(view))


def _rows_for_guesses(view: View) -> int:
    """Alone, the guesses are all that there is to see."""
    return max(AHEAD_ROWS, terminal_size()[1] // 2) if view.alone else AHEAD_ROWS


def terminal_size() -> tuple[int, int]:
    """Columns and rows of the terminal of stdout; what a terminal does not know counts as the usual."""
    size = os.get_terminal_size(sys.stdout.fileno())
    return size.columns or 80, size.lines or 24


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
