"""A drawing made of a few shapes, for whatever writes it into a file (`drawing_svg.py`, `drawing_png.py`).

Coordinates are pixels from the upper left corner. A style is a name; what it looks like stands in one table here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Style:
    """`fill` and `line` are #rrggbb colours, or "" for none; `dash` is on and off in pixels; `size` is of text."""

    fill: str = ""
    line: str = ""
    width: float = 0.0
    opacity: float = 1.0
    dash: tuple[float, float] | None = None
    size: float = 11.0
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Rect:
    """A box. `tip` is shown on hovering, where the format can."""

    x: float
    y: float
    width: float
    height: float
    style: str
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    style: str
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text, standing on `y`."""

    x: float
    y: float
    text: str
    style: str
    anchor: Anchor = "start"


Shape = Rect | Line | Text


@dataclass(frozen=True, slots=True)
class Drawing:
    """Shapes in the order of painting."""

    width: float
    height: float
    shapes: tuple[Shape, ...]


INK, SOFT, FAINT = "#1f2933", "#66727f", "#d5dbe1"
MODEL, OWN, TABLE = "#3a6ea5", "#c77d0a", "#8a5a9e"
SHIPPED, DRAFTED, OTHER = "#1b8a5a", "#8fd0b0", "#b4bcc5"
ALARM = "#c8372d"

STYLES: dict[str, Style] = {
    "paper": Style(fill="#ffffff"),
    "panel": Style(fill="#f6f8fa"),
    "title": Style(fill=INK, size=16, bold=True),
    "figures": Style(fill=SOFT, size=12),
    "label": Style(fill=INK, size=11, bold=True),
    "small": Style(fill=SOFT, size=10),
    "count": Style(fill=SOFT, size=9),
    "shore": Style(line=INK, width=1.4),
    "tick": Style(line=FAINT, width=0.8),
    # messages
    "open": Style(line=INK, width=1.4),
    "opened": Style(line=INK, width=1.4),
    "cancel": Style(line=ALARM, width=1.4),
    "draft": Style(line=MODEL, width=1.3),
    "ack": Style(line=OTHER, width=0.9),
    "step": Style(line=OWN, width=1.3, dash=(4, 3)),
    "commit": Style(line=SHIPPED, width=1.6),
    "plain": Style(line="#7b8794", width=1.2),
    "news": Style(line=OTHER, width=0.9),
    "lost": Style(line=ALARM, width=1.0, dash=(2, 3)),
    # the cloud's steps
    "verify step": Style(fill=SHIPPED, opacity=0.55),
    "plain step": Style(fill="#7b8794", opacity=0.45),
    # drafting, by source
    "lm": Style(fill=MODEL),
    "replay": Style(fill=MODEL),
    "own": Style(fill=OWN),
    "table": Style(fill=TABLE),
    "other source": Style(fill="#4f9da6"),
    "idle": Style(fill=FAINT),
    "pause": Style(fill=OTHER, opacity=0.6),
    # tokens
    "shipped token": Style(fill=SHIPPED),
    "drafted token": Style(fill=DRAFTED),
    "other token": Style(fill=OTHER),
    "outage": Style(fill=ALARM, opacity=0.12),
    "outage word": Style(fill=ALARM, size=11, bold=True),
}
