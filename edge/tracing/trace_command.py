"""The body of `acespec trace show`: a trace in; a picture, lines of text or a summary out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from acespec.edge.tracing.drawing import Drawing
from acespec.edge.tracing.drawing_svg import svg
from acespec.edge.tracing.timeline import timeline_of
from acespec.edge.tracing.timeline_drawing import draw
from acespec.edge.tracing.timeline_text import text_lines
from acespec.edge.tracing.trace_reader import Trace, read_trace
from acespec.edge.tracing.trace_summary import as_json, as_line, summary_of
from acespec.proto.errors import UsageError

TITLE_OPTIONS = ("drafter", "draft_model", "controller", "num_draft_tokens", "draft_tree", "link", "target_rate")
"""What of a header's options stands in a title."""


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """See the options of the command."""

    file: Path
    out: Path | None = None
    text: bool = False
    as_json: bool = False
    start: float | None = None
    end: float | None = None
    row: float | None = None
    session: int = 0


def show_command(options: ShowOptions) -> Iterable[str]:
    """Lines for stdout.

    Raises:
        UsageError: the options contradict each other, the trace cannot be read, or the picture not be written.
    """
    if options.text + options.as_json + (options.out is not None) > 1:
        raise UsageError("--out, --text and --json: choose one of them")
    whole = read_trace(options.file, options.session)
    start = whole.start if options.start is None else options.start
    end = whole.end if options.end is None else options.end
    part = whole.between(start, end)
    if not part.moments:
        raise UsageError(
            f"{options.file} has nothing from {start:g} to {end:g} s: it goes from {whole.start:.3f} to "
            f"{whole.end:.3f} s; choose other --from and --to"
        )
    if options.text:
        return text_lines(part)
    if options.as_json:
        return [json.dumps(as_json(summary_of(part)), ensure_ascii=False)]
    target = options.out or options.file.with_name(options.file.name + ".svg")
    timeline = timeline_of(whole, start, min(end, whole.end))
    _write(draw(timeline, title_of(whole), as_line(summary_of(part)), options.row), target)
    return [str(target)]


def title_of(trace: Trace) -> str:
    """What ran."""
    options = trace.header.get("options")
    named = options if isinstance(options, dict) else {}
    said = {name: named[name] for name in TITLE_OPTIONS if named.get(name) not in (None, "auto")}
    shown = [f"{name.replace('_', ' ')} {value}" for name, value in said.items()]
    return " · ".join([str(trace.header.get("model") or "acespec"), *shown])


def _write(drawing: Drawing, path: Path) -> None:
    try:
        match path.suffix.lower():
            case ".svg":
                path.write_text(svg(drawing), encoding="utf-8")
            case ".png":
                from acespec.edge.tracing.drawing_png import write_png

                write_png(drawing, path)
            case _:
                raise UsageError(f"--out {path}: the name must end in .svg or .png")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
