"""A drawing as an SVG file: plain shapes with one style sheet; hovering shows what a shape stands for."""

from __future__ import annotations

from xml.sax.saxutils import escape

from acespec.edge.tracing.drawing import STYLES, Drawing, Line, Rect, Shape, Style, Text

FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, sans-serif"


def svg(drawing: Drawing) -> str:
    """The text of the file."""
    used = list(dict.fromkeys(shape.style for shape in drawing.shapes))
    names = {style: f"s{number}" for number, style in enumerate(used)}
    width, height = _number(drawing.width), _number(drawing.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="{FONT}">'
    )
    sheet = "".join(f".{names[style]}{{{_css(STYLES[style])}}}" for style in used)
    return "\n".join(
        [head, f"<style>{sheet}</style>", *(_shape(s, names[s.style]) for s in drawing.shapes), "</svg>\n"]
    )


def _shape(shape: Shape, name: str) -> str:
    match shape:
        case Rect():
            box = _places(x=shape.x, y=shape.y, width=shape.width, height=shape.height)
            return _with_tip(f'<rect class="{name}" {box}', shape.tip, "rect")
        case Line():
            ends = _places(x1=shape.x1, y1=shape.y1, x2=shape.x2, y2=shape.y2)
            return _with_tip(f'<line class="{name}" {ends}', shape.tip, "line")
        case Text():
            anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
            return f'<text class="{name}" {_places(x=shape.x, y=shape.y)}{anchor}>{escape(shape.text)}</text>'


def _places(**values: float) -> str:
    return " ".join(f'{name}="{_number(value)}"' for name, value in values.items())


def _with_tip(start: str, tip: str, name: str) -> str:
    return f"{start}><title>{escape(tip)}</title></{name}>" if tip else f"{start}/>"


def _css(style: Style) -> str:
    rules = [f"fill:{style.fill or 'none'}"]
    if style.line:
        rules += [f"stroke:{style.line}", f"stroke-width:{style.width:g}", "stroke-linecap:round"]
    if style.dash:
        rules.append(f"stroke-dasharray:{style.dash[0]:g} {style.dash[1]:g}")
    if style.opacity < 1:
        rules.append(f"opacity:{style.opacity:g}")
    if not style.line:
        rules.append(f"font-size:{style.size:g}px")
    if style.bold:
        rules.append("font-weight:600")
    return ";".join(rules)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
