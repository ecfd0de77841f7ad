"""Specs, presets, outages: what is accepted, what is refused and how it says so."""

from __future__ import annotations

import json

import pytest

from acespec.proto.errors import UsageError
from acespec.sim.link import LinkSpec
from acespec.sim.outages import Outage, OutageCalendar
from acespec.sim.preset_table import presets_json, presets_text
from acespec.sim.presets import PRESETS
from acespec.sim.units import SECOND


def test_wan50_is_the_projects_target() -> None:
    spec = LinkSpec.preset("wan50")
    assert (spec.rate_up_kbps, spec.rate_down_kbps, spec.rtt_ms) == (50, 50, 100)
    assert (spec.jitter_ms, spec.loss_percent, spec.queue_bytes, spec.mss) == (10, 0, 3000, 1448)


def test_every_preset_has_a_source_and_room_for_two_packets() -> None:
    assert len(PRESETS) == 14
    for name, preset in PRESETS.items():
        assert preset.source
        assert preset.spec.name == name
        assert preset.spec.queue_bytes >= 2 * preset.spec.mtu


def test_the_tables_show_every_preset_with_its_source() -> None:
    text = presets_text()
    data = json.loads(presets_json())
    for name, preset in PRESETS.items():
        assert name in text
        assert preset.source in text
        assert data[name]["approximate"] is True
    assert "pproximate" in text


def test_an_unknown_preset_lists_the_known() -> None:
    with pytest.raises(UsageError, match=r"no link preset 'wan51'.*wan50"):
        LinkSpec.preset("wan51")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rate_up_kbps", 0),
        ("rate_down_kbps", -1),
        ("rate_up_kbps", float("nan")),
        ("delay_ms", -1),
        ("jitter_ms", float("inf")),
        ("loss_percent", 101),
        ("queue_bytes", 1499),
        ("mtu", 10),
        ("mtu", 100_000),
        ("overhead_bytes", -1),
    ],
)
def test_a_senseless_field_is_named(field: str, value: float) -> None:
    fields: dict[str, float] = {"rate_up_kbps": 50, "rate_down_kbps": 50, "delay_ms": 50, field: value}
    with pytest.raises(UsageError, match=field):
        LinkSpec(**fields)  # type: ignore[arg-type]


def test_outages_parse() -> None:
    assert Outage.parse("20:5") == Outage(20, 5)
    assert Outage.parse("0.5:0.25") == Outage(0.5, 0.25)


@pytest.mark.parametrize("text", ["", "20", "a:b", "20:0", "-1:5", "1:nan", "1:2:3"])
def test_a_bad_outage_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match=r"START"):
        Outage.parse(text)


def test_overlapping_outages_merge_and_work_stretches_across_them() -> None:
    calendar = OutageCalendar([Outage(3, 1), Outage(1, 1), Outage(1.5, 1)])
    assert calendar.up_from(0) == 0
    assert calendar.up_from(SECOND) == 5 * SECOND // 2
    assert calendar.up_from(5 * SECOND // 2) == 5 * SECOND // 2
    assert calendar.finish(0, SECOND) == SECOND
    assert calendar.finish(0, SECOND + 1) == 5 * SECOND // 2 + 1
    assert calendar.finish(0, 2 * SECOND) == 9 * SECOND // 2
