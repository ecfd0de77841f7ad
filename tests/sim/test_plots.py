"""Pictures of sweeps: the numbers that go into them, and that they come out as they should."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from acespec.proto.errors import UsageError
from acespec.sim.plot_command import PlotOptions, plot_command
from acespec.sim.plots import curves, distributions, style
from acespec.sim.plots.catalogue import standard_plots, xs_of
from acespec.sim.plots.grid import Point, find_quantity, panels, strategy_axis, values_of

from .sweep_cells import swept, tiny_result

AXES = {"link.rtt_ms": [10, 100, 600], "link.kbps": [20, 50], "strategy.name": ["plain", "ours"], "seed": [1, 2]}


def speed(values: Mapping[str, object]) -> float:
    """Plain decoding makes 40 tokens/s; ours gains with the rate, and by 2 more with seed 2."""
    if values["strategy.name"] == "plain":
        return 40.0
    return 40.0 + float(str(values["link.kbps"])) + (2.0 if values["seed"] == 2 else 0.0)


def test_cells_become_panels_series_and_points() -> None:
    data = swept(AXES, speed)
    found = panels(data, find_quantity("rtt", data), values_of("tokens_per_s", data), strategy_axis(data))
    assert list(found) == ["20 Kbps", "50 Kbps"]
    assert list(found["50 Kbps"]) == ["plain", "ours"]
    assert found["50 Kbps"]["ours"] == [Point(rtt, 91.0, 90.0, 92.0) for rtt in (10.0, 100.0, 600.0)]
    assert found["20 Kbps"]["plain"][0] == Point(10.0, 40.0, 40.0, 40.0)


def test_a_gain_compares_like_with_like() -> None:
    data = swept(AXES, speed)
    gain = values_of("gain", data)
    assert {gain(done) for done in data.cells if done.labels[1:] == ("20", "ours", "2")} == {62 / 40}
    assert {gain(done) for done in data.cells if "plain" in done.labels} == {1.0}
    alone = swept({"link.rtt_ms": [10, 100]}, lambda values: 40.0)
    with pytest.raises(UsageError, match="an axis with strategy plain"):
        values_of("gain", alone)


def test_quantities_are_found_by_name_or_axis() -> None:
    data = swept(AXES, speed)
    first = data.cells[0]
    assert find_quantity("rtt", data).of(first) == 10.0
    assert find_quantity("kbps", data).of(first) == 20.0  # The slower direction.
    assert find_quantity("load", data).of(first) == 1.0
    assert find_quantity("strategy.name", data).of(first) == "plain"
    assert find_quantity("rtt_ms", data).of(first) == 10.0
    with pytest.raises(UsageError, match=r"no axis 'speed': choose one of link\.rtt_ms, link\.kbps"):
        find_quantity("speed", data)
    assert xs_of(data) == ["rtt", "kbps"]


def test_a_curve_shows_what_was_measured() -> None:
    [figure] = curves.tokens_over("rtt", swept(AXES, speed))
    left, right = figure.axes
    assert left.get_xlabel() == "round trip time of the link, ms"
    assert left.get_ylabel() == "tokens/s"
    assert [axes.get_title() for axes in (left, right)] == ["20 Kbps", "50 Kbps"]
    assert left.get_xscale() == "log"
    plain, ours = right.get_lines()
    assert list(ours.get_xdata()) == [10.0, 100.0, 600.0]
    assert list(ours.get_ydata()) == [91.0] * 3
    assert plain.get_color() != ours.get_color()
    assert plain.get_marker() != ours.get_marker()
    bottom, top = left.get_ylim()
    assert bottom == 0
    assert top > 92  # The largest value stands in the other panel.
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["plain", "ours"]


def test_several_figures_share_a_colour_and_differ_in_line() -> None:
    [figure] = curves.bytes_over("rtt", swept({"link.rtt_ms": [10, 100]}, lambda values: 1.0))
    up, down = figure.axes[0].get_lines()
    assert up.get_color() == down.get_color()
    assert up.get_linestyle() != down.get_linestyle()
    assert up.get_ydata()[0] == tiny_result().up_bytes_per_token
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["up", "down"]


def test_many_panels_go_to_further_pages() -> None:
    data = swept({"link.rtt_ms": [10, 100], "drafter.acceptance": [n / 20 for n in range(15)]}, lambda values: 1.0)
    pages = curves.tokens_over("rtt", data)
    assert [len(page.axes) for page in pages] == [12, 3]


def test_a_distribution_is_over_edges() -> None:
    data = swept({"strategy.name": ["plain", "ours"]}, speed_of_two, edges=5)
    [figure] = distributions.speed_cdf(data)
    plain, ours = figure.axes[0].get_lines()
    assert list(plain.get_xdata()) == [40, 41, 42, 43, 44]
    assert list(plain.get_ydata()) == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert list(ours.get_xdata()) == [60, 61, 62, 63, 64]
    with pytest.raises(UsageError, match="5 edges or more"):
        distributions.speed_cdf(swept(AXES, speed))


def speed_of_two(values: Mapping[str, object]) -> float:
    return 40.0 if values["strategy.name"] == "plain" else 60.0


def test_all_that_applies_is_drawn_with_units() -> None:
    drawn = dict(
        standard_plots(swept({"link.rtt_ms": [10, 100], "strategy.name": ["plain", "ours"]}, speed_of_two, edges=5))
    )
    assert set(drawn) == {
        *(f"{name}_over_rtt" for name in ("tokens_per_s", "gain", "verifier_time", "bytes", "gaps")),
        *("cdf_tokens_per_s", "cdf_first_token", "cdf_gaps"),
    }
    for figure in drawn.values():
        for axes in figure.axes:
            assert re.search(r"ms|tokens/s|bytes|s$", axes.get_xlabel())
            assert re.search(r"tokens/s|ms|bytes|share", axes.get_ylabel())


def test_equal_pictures_are_equal_files() -> None:
    def drawn() -> str:
        return style.as_svg(curves.tokens_over("rtt", swept(AXES, speed))[0])

    assert drawn() == drawn()
    assert drawn().startswith("<svg")
    assert "<text" in drawn()  # Text stays text: searchable, and shown in the reader's font.


def test_colours_are_told_apart_with_every_kind_of_colour_vision() -> None:
    for sight in SIGHTS:
        seen = [seen_as(colour, np.array(sight)) for colour in style.COLOURS]
        assert min(float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2)) > 15
    assert len({(style.colour(n), style.mark(n)) for n in range(88)}) == 88


SIGHTS = (
    ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
)
"""Full sight, protanopia, deuteranopia, tritanopia in linear RGB (Machado, Oliveira and Fernandes, 2009)."""


def seen_as(colour: str, sight: NDArray[np.float64]) -> NDArray[np.float64]:
    """The colour in CIELAB (D65): distances there are about what people perceive; 2.3 is just noticeable."""
    coded = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    relative = to_xyz @ np.clip(sight @ linear, 0, 1) / np.array([0.9505, 1.0, 1.089])
    x, y, z = np.where(relative > 0.008856, np.cbrt(relative), 7.787 * relative + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_files_land_beside_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = swept(AXES, speed)
    monkeypatch.setattr("acespec.sim.plot_command.load_cells", lambda folder: data)
    names = plot_command(PlotOptions(tmp_path, x="kbps", y="gain", by="rtt_ms", format="svg")).splitlines()
    assert names == [str(tmp_path / "plots" / "gain_over_kbps.svg")]
    assert Path(names[0]).read_text().startswith("<?xml")
    [png] = plot_command(PlotOptions(tmp_path, y="first_token_s")).splitlines()
    assert Path(png).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="png, svg"):
        plot_command(PlotOptions(tmp_path, format="gif"))
    with pytest.raises(UsageError, match="no figure 'speed'"):
        plot_command(PlotOptions(tmp_path, y="speed"))
