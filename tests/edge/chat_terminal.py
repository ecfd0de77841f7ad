"""A terminal for tests that wraps its lines anew when it is resized, as most do, and keeps what has scrolled away.

It knows what a chat's screen writes and refuses everything else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rich.cells import get_character_cell_size

SEQUENCE = re.compile(r"\x1b(?:\[([?\d;]*)([A-Za-z])|([78D]))")


@dataclass
class Cell:
    """A character, and the accents that joined it; the second half of a wide one is a cell without text."""

    text: str
    style: str = ""


@dataclass
class Row:
    """`wraps`: its line goes on in the next row."""

    cells: list[Cell] = field(default_factory=list)
    wraps: bool = False


@dataclass
class Terminal:
    """`row` counts from the first row that was ever written; the screen shows `height` of them from `top`."""

    width: int
    height: int
    rows: list[Row] = field(default_factory=lambda: [Row()])
    row: int = 0
    column: int = 0
    top: int = 0
    pending: bool = False
    style: str = ""
    cursor: bool = True
    saved: tuple[int, int] = (0, 0)
    written: int = 0

    def write(self, text: str) -> None:
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = SEQUENCE.match(text, at)
                assert found, f"unknown sequence {text[at : at + 8]!r}"
                self._obey(found.group(1) or "", found.group(2) or found.group(3))
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def resize(self, width: int, height: int) -> None:
        """Wrap every line anew; the cursor stays where it is in the text, and the screen shows it at the bottom."""
        old, line, offset = self.rows, 0, self.column + self.pending
        lines: list[list[Cell]] = [[]]
        for number, row in enumerate(old):
            if number == self.row:
                line, offset = len(lines) - 1, offset + len(lines[-1])
            lines[-1] += row.cells
            if not row.wraps:
                lines.append([])
        self.width, self.height, self.pending = width, height, False
        self.rows = []
        for number, cells in enumerate(lines[:-1] if not old[-1].wraps else lines):
            first = len(self.rows)
            starts = self._wrap(cells)
            if number == line:
                at = max(at for at, start in enumerate(starts) if start <= offset)
                self.row, self.column = first + at, offset - starts[at]
                while self.column >= width:
                    self.row, self.column = self.row + 1, self.column - width
        self.top = 0
        self._reach(self.row)

    def screen(self) -> list[str]:
        """What can be seen, without blank rows at the end."""
        seen = ["".join(cell.text for cell in row.cells) for row in self.rows[self.top : self.top + self.height]]
        while seen and not seen[-1]:
            seen.pop()
        return seen

    def text(self, *, dim: bool | None = None) -> str:
        """All lines, without the wraps and without blank rows at the end; of dimmed or of plain cells only if asked."""
        end = max([self.row, *(at for at, row in enumerate(self.rows) if row.cells)])
        kept = ""
        for row in self.rows[: end + 1]:
            kept += "".join(c.text for c in row.cells if dim is None or c.style == ("2" if dim else ""))
            kept += "" if row.wraps else "\n"
        return kept.removesuffix("\n")

    def _obey(self, arguments: str, what: str) -> None:
        match what:
            case "m":
                self.style = "" if arguments == "0" else arguments
            case "J":
                assert arguments == ""
                del self.rows[self.row].cells[self.column + self.pending :]
                self.rows[self.row].wraps = False
                del self.rows[self.row + 1 :]
            case "A":
                self.row, self.pending = max(self.top, self.row - int(arguments)), False
            case "D":
                self.pending = False
                self._reach(self.row + 1)
            case "7":
                self.saved = self.row - self.top, self.column
            case "8":
                self.column, self.pending = self.saved[1], False
                self._reach(self.top + self.saved[0])
            case "h" | "l":
                assert arguments in ("?25", "?2026")
                if arguments == "?25":
                    self.cursor = what == "h"
            case _:
                raise AssertionError(f"unknown sequence {arguments}{what}")

    def _put(self, character: str) -> None:
        cells = get_character_cell_size(character)
        if character in "\r\n":
            self.pending = False
            if character == "\r":
                self.column = 0
            else:
                self._reach(self.row + 1)
        elif cells == 0:
            assert ord(character) > 0x9F, f"control character {character!r}"
            self._join(character)
        else:
            self._print(character, cells)

    def _print(self, character: str, cells: int) -> None:
        if self.pending or self.column + cells > self.width:
            self.rows[self.row].wraps = True
            self.column, self.pending = 0, False
            self._reach(self.row + 1)
        self.written += 1
        row = self.rows[self.row].cells
        row += [Cell(" ") for _ in range(self.column - len(row))]
        row[self.column : self.column + cells] = [Cell(character, self.style), *[Cell("", self.style)] * (cells - 1)]
        self.column += cells
        if self.column >= self.width:
            self.column, self.pending = self.width - 1, True

    def _join(self, accent: str) -> None:
        before = self.rows[self.row].cells[: self.column + self.pending]
        for cell in reversed(before):
            if cell.text:
                cell.text += accent
                return

    def _reach(self, row: int) -> None:
        """The cursor goes to a row, which may scroll the screen."""
        self.rows += [Row() for _ in range(row + 1 - len(self.rows))]
        self.row = row
        self.top = max(self.top, row - self.height + 1)

    def _wrap(self, cells: list[Cell]) -> list[int]:
        """Append a line's rows; where in the line each begins."""
        starts, row = [0], Row()
        for at, cell in enumerate(cells):
            wide = at + 1 < len(cells) and cells[at + 1].text == ""
            if cell.text and len(row.cells) + 1 + wide > self.width:
                self.rows.append(Row(row.cells, wraps=True))
                starts.append(at)
                row = Row()
            row.cells.append(cell)
        self.rows.append(row)
        return starts
