"""The report: right about who is faster and by how much, complete, and in need of nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from acespec.proto.errors import UsageError
from acespec.sim.report import report_html
from acespec.sim.report_command import ReportOptions, report_command
from acespec.sim.sweep_file import read_sweep
from acespec.sim.sweep_store import SweepStore
from acespec.sim.verdicts import sentences, summary, verdicts
from acespec.sim.world.scenario import StrategySpec
from acespec.sim.world.world import run

from .sweep_cells import swept

SPEEDS = {
    ("10", "plain"): 40.0,
    ("10", "coloc"): 120.0,
    ("10", "ours"): 100.0,
    ("600", "plain"): 44.0,
    ("600", "coloc"): 40.2,
    ("600", "ours"): 40.0,
}
AXES = {"link.rtt_ms": [10, 600], "strategy.name": ["plain", "coloc", "ours"]}


def speed(values: Mapping[str, object]) -> float:
    return SPEEDS[str(values["link.rtt_ms"]), str(values["strategy.name"])]


def test_words_say_who_is_faster_and_by_how_much() -> None:
    judged = verdicts(swept(AXES, speed))
    assert list(sentences(judged)) == [
        "RTT 10 ms: co-located speculative decoding beats ours: 120.0 against 100.0 tokens/s, 20 % more.",
        "RTT 600 ms: plain decoding beats ours: 44.0 against 40.0 tokens/s, 10 % more.",
    ]
    lines = list(summary(judged))
    assert lines[0].startswith("Ours is the fastest, or within 1 % of it, under 0 of 2 conditions")
    assert lines[1].endswith("Without it, ours is the fastest, or within 1 % of it, under 1 of 2.")
    assert lines[2:] == [
        "Co-located speculative decoding beats ours under 1 of 2 conditions: by 20 % at the median, by 20 % at most "
        "(RTT 10 ms).",
        "Plain decoding beats ours under 1 of 2 conditions: by 10 % at the median, by 10 % at most (RTT 600 ms).",
    ]


def test_the_best_variant_counts_and_seeds_are_averaged() -> None:
    ways = [{"name": "plain"}, {"name": "ours"}, {"name": "ours", "params": {"draft": "8"}}]
    axes = {"strategy": ways, "seed": [1, 2]}
    by_label = {"plain": 40.0, "ours": 30.0, "ours (draft 8)": 41.0}
    data = swept(axes, lambda values: 1.0)
    cells = tuple(
        replace(
            done,
            result=replace(
                done.result,
                scenario=replace(done.result.scenario, strategy=StrategySpec(done.labels[0].split()[0])),
                tokens_per_s=replace(done.result.tokens_per_s, mean=by_label[done.labels[0]] + (done.point[1] or -1)),
            ),
        )
        for done in data.cells
    )
    [verdict] = verdicts(replace(data, cells=cells))
    assert (verdict.ours.label, verdict.ours.speed) == ("ours (draft 8)", 41.0)
    assert [(other.label, other.speed) for other in verdict.others] == [("plain", 40.0)]
    assert not list(sentences([verdict]))


def test_without_rivals_nothing_is_judged() -> None:
    data = swept({"link.rtt_ms": [10, 600]}, lambda values: 40.0)
    assert verdicts(data) == []
    assert "nothing to judge" in " ".join(summary([]))


class Page(HTMLParser):
    """Tags with their attributes, and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_a_report_is_complete_and_needs_nothing_else() -> None:
    data = replace(swept(AXES, speed), missing=("5 / ours",), failed=(("5 / ours", "it <broke>"),), text='a = "<b>"')
    html = report_html(data)
    page = Page(html)
    words = " ".join(page.words)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "b", "broke"}
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href"):
                assert (value or "").startswith("#"), (tag, name, value)
    assert "url(http" not in html
    assert "@import" not in html
    for said in (
        data.command,
        data.version,
        data.cells[0].result.digest,
        'a = "<b>"',
        "it <broke>",
        "beats ours: 120.0",
    ):
        assert said in words
    best = [re.sub("<.*?>", "", cell) for cell in re.findall(r'<td class="best">.*?</td>', html)]
    assert best == ["120.0", "44.0"]
    pictures = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(pictures) == 5
    for picture in pictures:
        ElementTree.fromstring(picture)
    assert report_html(data) == html


def test_the_command_writes_one_file(tmp_path: Path) -> None:
    file = tmp_path / "demo.toml"
    file.write_text('duration_s = 2\nload = { tokens = 8 }\n[sweep.axes]\n"strategy.name" = ["plain", "ours"]\n')
    sweep, store = read_sweep(file), SweepStore(tmp_path / "out")
    store.prepare(sweep, ["acespec-sim", "sweep", "demo.toml"])
    with pytest.raises(UsageError, match="no finished cells"):
        report_command(ReportOptions(tmp_path / "out"))
    for cell in sweep.cells:
        store.keep(cell.scenario, run(cell.scenario))
    assert report_command(ReportOptions(tmp_path / "out")) == str(tmp_path / "out" / "report.html")
    text = (tmp_path / "out" / "report.html").read_text()
    assert "Ours is the fastest" in text or "beats ours" in text
