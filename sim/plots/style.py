"""How pictures look: colours that the colour-blind tell apart, marks and lines besides, and no display needed."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from acespec.proto.errors import UsageError

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#5C2A7E")
"""After Okabe and Ito, Color Universal Design (2008); a dark purple for yellow, which is too faint on white."""
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
LINES: tuple[Literal["-", "--", ":"], ...] = ("-", "--", ":")
FORMATS = ("png", "svg")
COLUMNS = 3
PANEL = (3.4, 2.7)
DPI = 130


def colour(number: int) -> str:
    """Of the series of that number."""
    return COLOURS[number % len(COLOURS)]


def mark(number: int) -> str:
    """Of the series of that number; with the colour it repeats only after 88."""
    return MARKS[number % len(MARKS)]


def new_figure(panels: Sequence[str], title: str) -> tuple[Figure, list[Axes]]:
    """A figure with a place for each panel, titled."""
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    with _settings():
        figure = Figure(figsize=(max(5.2, columns * PANEL[0]), rows * PANEL[1] + 1.5), layout="constrained")
        FigureCanvasAgg(figure)
        places = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel().tolist()
        for place, panel in zip(places, panels, strict=False):
            place.set_title(panel, fontsize=9)
        for place in places[len(panels) :]:
            place.set_axis_off()
        figure.suptitle(title, fontsize=11)
    return figure, places[: len(panels)]


def add_legend(figure: Figure, names: Sequence[str], lines: Sequence[str] = ()) -> None:
    """Below the panels: what colours and marks mean, and what kinds of lines mean."""
    handles = [
        Line2D([], [], color=colour(n), marker=mark(n), markersize=4, label=name)
        for n, name in enumerate(names)
        if name
    ]
    handles += [
        Line2D([], [], color="0.3", linestyle=style, label=name) for style, name in zip(LINES, lines, strict=False)
    ]
    if handles:
        figure.legend(
            handles=handles, loc="outside lower center", ncols=min(4, len(handles)), fontsize=8, frameon=False
        )


def save(figure: Figure, path: Path) -> None:
    """Write as the suffix of `path` says. Raises UsageError if it cannot be written."""
    try:
        path.write_bytes(_bytes(figure, path.suffix[1:]))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def as_svg(figure: Figure) -> str:
    """For a place inside HTML: without head, metadata and comments, places to a hundredth of a point.

    Equal figures give equal text.
    """
    text = _bytes(figure, "svg").decode()
    bare = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL)
    bare = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", bare)
    return re.sub(r"\s*\n\s*", "\n", _PLACES.sub(lambda found: _LONG.sub(r"\1", found[0]), bare))


_PLACES = re.compile(r'\b(?:d|x|y|transform|style)="[^"]*"')
_LONG = re.compile(r"(\.\d\d)\d+")


def _settings() -> AbstractContextManager[None]:
    """Text stays text, equal pictures are equal files."""
    return mpl.rc_context(
        {"svg.hashsalt": "acespec", "svg.fonttype": "none", "font.size": 9.0, "axes.grid": True, "grid.alpha": 0.3}
    )


def _bytes(figure: Figure, form: str) -> bytes:
    buffer = io.BytesIO()
    with _settings():
        figure.savefig(buffer, format=form, dpi=DPI, metadata={"Date": None} if form == "svg" else None)
    return buffer.getvalue()
