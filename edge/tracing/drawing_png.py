"""A drawing as a PNG file, if matplotlib is there: acespec[sim] has it, an edge alone does not need it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from acespec.edge.tracing.drawing import STYLES, Drawing, Line, Rect, Style, Text
from acespec.proto.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 100
"""At which a pixel of the drawing is one of the figure; the file has SHARPNESS times as many."""
SHARPNESS = 2
POINTS = 72 / DPI
"""Of a pixel."""


def write_png(drawing: Drawing, path: Path) -> None:
    """Write the file.

    Raises:
        UsageError: there is no matplotlib.
        OSError: the file cannot be written.
    """
    if find_spec("matplotlib") is None:
        raise UsageError("PNG needs matplotlib: pip install 'acespec[sim]', or ask for --out NAME.svg")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(drawing.width / DPI, drawing.height / DPI), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    runs = groupby(drawing.shapes, key=lambda shape: (type(shape), shape.style))
    for order, ((kind, style), shapes) in enumerate(runs, 1):
        same = list(shapes)
        if kind is Rect:
            _paint_rects(axes, [s for s in same if isinstance(s, Rect)], STYLES[style], order)
        elif kind is Line:
            _paint_lines(axes, [s for s in same if isinstance(s, Line)], STYLES[style], order)
        else:
            _paint_texts(axes, [s for s in same if isinstance(s, Text)], STYLES[style], order)
    figure.savefig(path, format="png", dpi=DPI * SHARPNESS)


def _paint_rects(axes: Axes, rects: Sequence[Rect], style: Style, order: int) -> None:
    from matplotlib.collections import PolyCollection

    corners = [
        [(r.x, r.y), (r.x + r.width, r.y), (r.x + r.width, r.y + r.height), (r.x, r.y + r.height)] for r in rects
    ]
    painted = PolyCollection(corners, facecolors=style.fill, edgecolors="none", alpha=style.opacity, zorder=order)
    axes.add_collection(painted, autolim=False)


def _paint_lines(axes: Axes, lines: Sequence[Line], style: Style, order: int) -> None:
    from matplotlib.collections import LineCollection

    ends = [[(line.x1, line.y1), (line.x2, line.y2)] for line in lines]
    width = style.width * POINTS
    dashes = (0.0, [part / style.width for part in style.dash]) if style.dash else "solid"
    painted = LineCollection(ends, colors=style.line, linewidths=width, linestyles=dashes, zorder=order)
    axes.add_collection(painted, autolim=False)


def _paint_texts(axes: Axes, texts: Sequence[Text], style: Style, order: int) -> None:
    sides = {"start": "left", "middle": "center", "end": "right"}
    for text in texts:
        axes.text(
            text.x,
            text.y,
            text.text,
            color=style.fill,
            fontsize=style.size * POINTS,
            fontweight="bold" if style.bold else "normal",
            ha=sides[text.anchor],
            va="baseline",
            zorder=order,
            parse_math=False,
        )
