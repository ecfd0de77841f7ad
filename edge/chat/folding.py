"""Prose breaks between words; what is copied for its exact lines, code, is left to the terminal's own wrapping.

A row that is too short for the next word ends with a newline of ours in place of the blanks that do not fit. Text
without blanks (a long address, Chinese) wraps wherever the terminal wraps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from acespec.edge.chat.cells import advance, clusters

FENCE = "```"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the text one is.

    Attributes:
        line: the line of the text so far, as it came.
        column: on the terminal; its width stands for the state in which it will wrap before the next character.
        code: between two fences.
    """

    line: str = ""
    column: int = 0
    code: bool = False


def units(text: str) -> list[str]:
    """The pieces between which text may break: a word with the blanks before it, a newline, or a wide character."""
    found: list[str] = []
    wide = False
    for cluster, cells in clusters(text):
        last = found[-1] if found else "\n"
        begins_word = cluster == " " or cells > 1 or wide
        if "\n" in (last, cluster) or (begins_word and not last.isspace()):
            found.append(cluster)
        else:
            found[-1] += cluster
        wide = cells > 1
    return found


def fold(place: Place, text: str, width: int, *, mark: int = 0) -> tuple[str, str, Place]:
    """`text` with its rows' ends, behind `place` on a terminal `width` cells wide: what comes of its first `mark`
    characters, what comes of the rest, and where that leads."""
    before = behind = ""
    taken = 0
    for unit in units(text):
        row = unit if unit == "\n" or place.code or _goes_on(place, unit) else _fitted(place.column, unit, width)
        behind_mark = min(len(unit), max(0, taken + len(unit) - mark))
        cut = 0 if behind_mark == len(unit) else max(0, len(row) - behind_mark)
        taken += len(unit)
        before, behind = before + row[:cut], behind + row[cut:]
        column = advance(place.column, row, width)[1]
        place = _next_line(place) if unit == "\n" else Place(place.line + unit, column, place.code)
    return before, behind, place


def ends(text: str, width: int) -> Iterator[int]:
    """Where `text` may be cut, the last place first: behind a newline, else before a word that may still grow.

    A word that fills a row by itself may be cut anywhere: it is not going to be folded.
    """
    if not text or text.endswith("\n"):
        yield len(text)
    at = len(text)
    for unit in reversed(units(text)):
        if advance(0, unit, width)[0]:
            for cluster, _cells in reversed(clusters(unit)[1:]):
                at -= len(cluster)
                yield at
            at -= len(clusters(unit)[0][0])
        else:
            at -= len(unit)
        yield at


def _goes_on(place: Place, unit: str) -> bool:
    """True if the unit is the rest of a word whose beginning stands there already."""
    return not unit.startswith(" ") and place.line[-1:] not in ("", " ")


def _fitted(column: int, unit: str, width: int) -> str:
    word = unit.lstrip(" ")
    blanks = len(unit) - len(word)
    rows, cells = advance(0, word, width)
    if rows or column + blanks + cells <= width:
        return unit
    return " " * max(0, min(blanks, width - column)) + ("\n" + word if word else "")


def _next_line(place: Place) -> Place:
    fence = place.line.lstrip().startswith(FENCE)
    return Place("", 0, place.code is not fence)
