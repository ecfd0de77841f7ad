"""`acespec trace`. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(name="trace", help="Look at what --trace has written.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """Look at what --trace has written."""


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="A file that generate or chat wrote by --trace.")],
    out: Annotated[
        Path | None, typer.Option(help="The picture, .svg or .png. Default: FILE.svg.", show_default=False)
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="Lines of text on stdout, no picture.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A summary as a JSON object on stdout, no picture.")] = False,
    start: Annotated[
        float | None, typer.Option("--from", min=0.0, help="Seconds. Default: the first record.", show_default=False)
    ] = None,
    end: Annotated[
        float | None, typer.Option("--to", min=0.0, help="Seconds. Default: the last record.", show_default=False)
    ] = None,
    row: Annotated[
        float | None,
        typer.Option(min=0.001, help="Seconds of a strip. Default: at most five strips.", show_default=False),
    ] = None,
    session: Annotated[int, typer.Option(min=0, help="Which session, where --choices made several.")] = 0,
) -> None:
    """Draw a run as a timeline: messages in flight, drafts, commits, plain steps, outages."""
    from acespec.edge.tracing.trace_command import ShowOptions, show_command

    for line in show_command(ShowOptions(file, out, text, as_json, start, end, row, session)):
        sys.stdout.write(line + "\n")
