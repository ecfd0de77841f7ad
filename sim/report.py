"""A sweep as one HTML file that needs nothing else: what was run, what it says in words, pictures, all figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from acespec.sim.figures import FIGURES, shown
from acespec.sim.plots import style
from acespec.sim.plots.catalogue import standard_plots
from acespec.sim.sweep_store import Done, SweepData
from acespec.sim.verdicts import fastest, sentences, speeds, summary, verdicts

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
h1, h2 { line-height: 1.2 } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto }
th, td { border: 1px solid #ddd; padding: .2rem .5rem; text-align: right }
th:first-child, td:first-child { text-align: left }
th { background: #f4f4f4; font-weight: 600 } td.best { font-weight: 700; background: #e6f2ea }
pre, code { font: 12.5px/1.4 ui-monospace, monospace; background: #f6f6f6 } pre { padding: .7rem; overflow-x: auto }
figure { margin: 1.2rem 0 } svg { max-width: 100%; height: auto } .digest { font-family: ui-monospace, monospace }
summary { cursor: pointer }
dl { display: grid; grid-template-columns: max-content auto; gap: .2rem 1rem } dd { margin: 0 }
"""
COUNTED = (
    "Bytes are those of the IP layer: headers of packets, bare ACKs, retransmissions and the set-up of the connection "
    "are in them. The acceptance length does not count the bonus token. Decoding speed is tokens behind the first "
    "commit over the time since it."
)


def report_html(data: SweepData) -> str:
    """The whole file: equal data give equal text."""
    parts = [
        *_head(data),
        *_section("In words", _words(data)),
        *_section("Decoding speed of an edge, tokens/s", [_speed_table(data)]),
        *_section("Pictures", _pictures(data)),
        *_section("All figures", [f"<p>{escape(COUNTED)}</p>", _details("every cell", _figure_table(data))]),
        *_section("What was run", [f"<pre>{escape(data.text)}</pre>"]),
    ]
    title = escape(data.name)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _head(data: SweepData) -> Iterator[str]:
    cells = f"{len(data.cells)} of {len(data.cells) + len(data.missing)}"
    facts = {
        "command": f"<code>{escape(data.command)}</code>",
        "version": escape(data.version),
        "cells": cells,
        "varied": "; ".join(f"{escape(axis.name)}: {escape(', '.join(axis.labels))}" for axis in data.axes),
    }
    yield f"<h1>{escape(data.name)}</h1>"
    yield "<dl>" + "".join(f"<dt>{name}</dt><dd>{fact}</dd>" for name, fact in facts.items()) + "</dl>"
    if data.missing:
        reasons = dict(data.failed)
        names = [f"{escape(name)}: {escape(reasons.get(name, 'not run'))}" for name in data.missing]
        yield _details(f"{len(names)} cells are missing", _list(names))


def _words(data: SweepData) -> Iterator[str]:
    judged = verdicts(data)
    yield _list(map(escape, summary(judged)))
    losses = list(map(escape, sentences(judged)))
    if losses:
        yield "<p>Where co-located speculative decoding or plain decoding beats ours:</p>"
        yield _list(losses)
    elif judged:
        yield "<p>Neither co-located speculative decoding nor plain decoding beats ours under any of them.</p>"


def _speed_table(data: SweepData) -> str:
    """A row for each condition, a column for each strategy; the fastest is marked."""
    found = speeds(data)
    columns = list(dict.fromkeys(label for labels in found.values() for label in labels))
    rows = []
    for where, labels in found.items():
        best = fastest(labels)
        cells = [
            _cell("-", False) if label not in labels else _cell(shown(labels[label].speed), labels[label].speed == best)
            for label in columns
        ]
        rows.append(f"<tr><td>{escape(where) or 'all'}</td>{''.join(cells)}</tr>")
    return _table(["condition", *columns], rows)


def _pictures(data: SweepData) -> Iterator[str]:
    for name, figure in standard_plots(data):
        yield f'<figure id="{escape(name)}">{style.as_svg(figure)}</figure>'


def _figure_table(data: SweepData) -> str:
    names = [axis.name for axis in data.axes]
    titles = [*names, *(figure.label for figure in FIGURES.values()), "tokens", "digest of events"]
    return _table(titles, map(_figures, data.cells))


def _figures(done: Done) -> str:
    result = done.result
    numbers = [shown(figure.of(result)) for figure in FIGURES.values()]
    cells = [_cell(escape(text), False) for text in (*done.labels, *numbers, str(result.tokens))]
    return f'<tr>{"".join(cells)}<td class="digest">{escape(result.digest)}</td></tr>'


def _section(title: str, parts: Iterable[str]) -> Iterator[str]:
    yield f"<h2>{escape(title)}</h2>"
    yield from parts


def _table(titles: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _cell(text: str, best: bool) -> str:
    return f'<td class="best">{text}</td>' if best else f"<td>{text}</td>"


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _details(title: str, body: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{body}</details>"
