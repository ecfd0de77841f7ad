"""Where text lands on a terminal: clusters of characters, the cells they take, and how lines wrap at the margin.

A cluster is what one reads as one character: a letter with its accents, an emoji with its modifiers. Widths are rich's.
"""

from __future__ import annotations

from rich.cells import split_graphemes

TAB = "    "
ELLIPSIS = "…"
_FIRST_PICTURE = 0x2400
"""Unicode's pictures of the control characters begin here."""
_SHOWN_AS = (
    {code: chr(_FIRST_PICTURE + code) for code in range(32)}
    | {0x7F: "\u2421"}
    | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
    | {ord("\n"): "\n", ord("\t"): TAB, ord("\r"): ""}
)


def harmless(text: str) -> str:
    """`text` without what would steer a terminal: control characters become visible, tabs four spaces."""
    return text.translate(_SHOWN_AS)


def clusters(text: str) -> list[tuple[str, int]]:
    """The clusters of `text` in order, each with the cells it takes; a newline is one of its own, of no cells."""
    found: list[tuple[str, int]] = []
    for number, line in enumerate(text.split("\n")):
        if number:
            found.append(("\n", 0))
        found += [(line[start:end], cells) for start, end, cells in split_graphemes(line)[0]]
    return found


def cluster_end(text: str, at: int) -> int:
    """The first end of a cluster of `text` at or behind `at`; 0 stays 0."""
    if at <= 0:
        return 0
    end = 0
    for cluster, _cells in clusters(text):
        end += len(cluster)
        if end >= at:
            return end
    return end


def advance(column: int, text: str, width: int) -> tuple[int, int]:
    """Rows down and the column reached by writing `text` from `column` on a terminal `width` cells wide.

    A column of `width` is the state in which the terminal will wrap before the next character.
    """
    rows = 0
    for cluster, cells in clusters(text):
        rows, column = _after(rows, column, cluster, cells, width)
    return rows, column


def fitting(column: int, text: str, width: int, rows: int) -> str:
    """As much of `text` as stays within `rows` rows, the one of `column` included; `…` ends what was cut."""
    row, reached, end = 0, column, 0
    fits = 0  # up to here there is room for the ellipsis too
    for cluster, cells in clusters(text):
        row, reached = _after(row, reached, cluster, cells, width)
        if row >= rows:
            return text[:fits] + ELLIPSIS
        end += len(cluster)
        if row < rows - 1 or reached < width:
            fits = end
    return text


def _after(row: int, column: int, cluster: str, cells: int, width: int) -> tuple[int, int]:
    if cluster == "\n":
        return row + 1, 0
    if column + cells > width:
        return row + 1, cells
    return row, column + cells
