"""An answer on a terminal: final text that scrolls away for good, and behind it a live end that is drawn anew.

Between two frames the cursor rests before the last word of the final text. All that may change stands behind the
cursor: that word (it may grow, or have to go to the next row), the guesses, the status line. So the next frame needs
one instruction to be rid of it, however the terminal has moved or wrapped it since, and what stands before the cursor
is written once and never touched again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rich.color import ColorSystem
from rich.style import Style

from acespec.edge.chat.cells import advance, fitting, harmless
from acespec.edge.chat.folding import Place, ends, fold

GUESS = Style(dim=True)
"""Nothing else is dimmed."""
STATUS = Style(color="cyan")
ALARM = Style(color="yellow", bold=True)

AHEAD_ROWS = 3
"""Rows that the guesses may take, that of the last final word included."""

_ERASE_BEHIND = "\x1b[J"
_INDEX = "\x1bD"  # one row down in the same column; scrolls at the bottom
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_BEGIN_FRAME, _END_FRAME = "\x1b[?2026h", "\x1b[?2026l"  # shown as one where the terminal can; ignored elsewhere


@dataclass(frozen=True, slots=True)
class Status:
    """The line below an answer; an alarm stands out."""

    text: str
    alarm: bool = False


class Screen:
    """One answer, from `begin` to `end`. It starts in column 0 of a row of its own.

    Args:
        write: takes what goes to the terminal.
        size: columns and rows of it, asked at each frame.
    """

    def __init__(self, write: Callable[[str], None], size: Callable[[], tuple[int, int]]) -> None:
        self._write = write
        self._size = size
        self._place = Place()  # where the cursor rests
        self._row = ""  # what stands before it, back to the last newline
        self._tail = ""  # the final text behind it
        self._width = 0
        self._drawn: tuple[object, ...] = ()

    def begin(self) -> None:
        """No cursor while frames are drawn."""
        self._write(_HIDE)

    def show(self, text: str, ahead: str, status: Status, *, ahead_rows: int = AHEAD_ROWS) -> None:
        """One more frame: `text` is final from now on, `ahead` is guessed behind it."""
        width, height = self._size()
        frame = (ahead, status, ahead_rows, width, height)
        if text or frame != self._drawn:
            self._drawn = frame
            self._fit(width)
            final = self._settle(text)
            live = self._live(harmless(ahead), min(ahead_rows, height - 2), status, height)
            self._write(_BEGIN_FRAME + _ERASE_BEHIND + final + live + _END_FRAME)

    def end(self, text: str = "") -> None:
        """The last of the final text; nothing else stays. The cursor is back, in column 0 of a row of its own."""
        self._fit(self._size()[0])
        _, last, place = fold(self._place, self._tail + harmless(text), self._width)
        self._write(_ERASE_BEHIND + _raw(last) + ("\r\n" if place.line else "") + _SHOW)
        self._place, self._row, self._tail = Place(), "", ""

    def _fit(self, width: int) -> None:
        """The terminal has wrapped anew what stands before the cursor."""
        if width != self._width:
            self._width = width
            column = advance(0, self._row, width)[1]
            self._place = replace(self._place, column=column if column < width else 0)

    def _settle(self, text: str) -> str:
        """Write final text up to its last unit, or up to one before which the cursor can rest.

        It cannot rest at the margin: the terminal has yet to wrap there, and would forget it on the way.
        """
        text = self._tail + harmless(text)
        for at in ends(text, self._width):
            _, folded, place = fold(self._place, text[:at], self._width)
            if place.column < self._width:
                self._place, self._tail = place, text[at:]
                self._row = (self._row + folded).rpartition("\n")[2]
                return _raw(folded)
        raise RuntimeError("the cursor rested at the margin")

    def _live(self, ahead: str, room: int, status: Status, height: int) -> str:
        """Draw behind the final text, and come back."""
        column, width = self._place.column, self._width
        final, guess, _ = fold(self._place, self._tail + ahead, width, mark=len(self._tail))
        needed = advance(column, final, width)[0] + 1
        shown = fitting(column, final + guess, width, max(needed, room))
        if not shown.startswith(final):
            shown = final
        rows = advance(column, shown, width)[0]
        drawn = _raw(shown[: len(final)]) + painted(shown[len(final) :], GUESS)
        if status.text and rows + 1 < height:
            rows += 1
            line = fitting(0, status.text, width - 1, 1)
            drawn += "\r\n" + painted(line, ALARM if status.alarm else STATUS)
        reserve = _INDEX * rows + f"\x1b[{rows}A" if rows else ""
        return reserve + _SAVE + drawn + _RESTORE


def _raw(text: str) -> str:
    return text.replace("\n", "\r\n")


def painted(text: str, style: Style) -> str:
    """`text` in a style, which runs over no line's end."""
    return "\r\n".join(style.render(line, color_system=ColorSystem.STANDARD) for line in text.split("\n"))
