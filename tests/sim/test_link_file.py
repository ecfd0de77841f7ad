"""Own links as TOML: every field, traces beside the file, a preset to start from, errors that name file and field."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given

from acespec.proto.errors import UsageError
from acespec.sim.delay import DelayStep
from acespec.sim.link import LinkSpec
from acespec.sim.link_file import read_link_file
from acespec.sim.loss import GilbertElliott
from acespec.sim.outages import OnOff, Outage
from acespec.sim.rate import MarkovRate, RateState, RateTrace
from acespec.sim.spec_reader import spec_from_table

from .link_strategies import specs

DOCS = Path(__file__).parents[2] / "docs" / "link.md"
EVERY_FIELD = """
name = "hut"
rate_up_kbps = 20
rate_down = { states = [{ kbps = 60, mean_dwell_s = 8 }, { kbps = 10.0, mean_dwell_s = 2 }] }
delay_ms = 120
delay_steps = ["20:40", { start_s = 30, delay_ms = 250.5 }]
jitter_ms = 15.5
burst_loss = { p = 0.01, r = 0.25, loss_bad = 0.9, loss_good = 0.001 }
queue_bytes = 4000
mtu = 1400
overhead_bytes = 40
outages = ["20:5", { start_s = 60, duration_s = 1.5 }]
on_off = { mean_up_s = 300, mean_down_s = 4 }
half_duplex = false
mode = "police"
burst_bytes = 9000
tcp_backoff = true
seed = 11
"""
PLAIN = "rate_up_kbps = 50\nrate_down_kbps = 50\ndelay_ms = 50\n"


def read(folder: Path, text: str) -> LinkSpec:
    path = folder / "hut.toml"
    path.write_text(text)
    return read_link_file(path)


def test_every_field_can_be_given(tmp_path: Path) -> None:
    spec = read(tmp_path, EVERY_FIELD)
    chain = MarkovRate((RateState(60, 8), RateState(10, 2)))
    loss = GilbertElliott(0.01, 0.25, 0.9, 0.001)
    assert spec == LinkSpec(
        rate_up_kbps=20,
        rate_down_kbps=chain.mean_kbps,
        delay_ms=120,
        jitter_ms=15.5,
        loss_percent=loss.mean_percent,
        queue_bytes=4000,
        mtu=1400,
        overhead_bytes=40,
        outages=(Outage(20, 5), Outage(60, 1.5)),
        seed=11,
        name="hut",
        rate_down=chain,
        burst_loss=loss,
        on_off=OnOff(300, 4),
        mode="police",
        burst_bytes=9000,
        tcp_backoff=True,
        delay_steps=(DelayStep(20, 40), DelayStep(30, 250.5)),
    )
    mentioned = set(re.findall(r"^(\w+) =", EVERY_FIELD, re.MULTILINE))
    means_and_twin = {"rate_down_kbps", "rate_up", "loss_percent"}
    assert mentioned | means_and_twin == {field.name for field in fields(LinkSpec)}


def test_the_file_names_the_link_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert read(tmp_path, PLAIN) == LinkSpec(50, 50, 50, name="hut")


def test_a_preset_is_the_start_and_fields_override_it(tmp_path: Path) -> None:
    spec = read(tmp_path, 'preset = "gprs"\nrate_up_kbps = 10\nname = "slow gprs"\n')
    assert spec == replace(LinkSpec.preset("gprs"), rate_up_kbps=10, name="slow gprs")
    lossy = read(tmp_path, 'preset = "gprs"\nburst_loss = { p = 0.1, r = 0.3 }')
    assert lossy.loss == GilbertElliott(0.1, 0.3)


def test_a_trace_is_read_from_beside_the_file_and_scaled(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "bus.csv").write_text("0,100\n1,300\n")
    spec = read(
        tmp_path,
        'rate_down_kbps = 50\ndelay_ms = 50\nrate_up = { trace = "traces/bus.csv", scale_to_mean_kbps = 50 }\n',
    )
    assert spec.rate_up == RateTrace(((0, 25), (1, 75)), 2)
    assert spec.rate_up_kbps == 50
    inline = read(tmp_path, "rate_up_kbps = 50\ndelay_ms = 50\n[rate_down]\npoints = [[0, 25], [1, 75]]\nperiod_s = 2")
    assert inline.rate_down == spec.rate_up


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rate_up_kbps = ", "is not TOML"),
        (PLAIN + "speed = 3", "no field 'speed': its fields are name, rate_up_kbps"),
        ("rate_up_kbps = 50\ndelay_ms = 50", "has no rate_down_kbps"),
        (PLAIN + "jitter_ms = '3'", "jitter_ms is '3': it must be a number"),
        (PLAIN + "jitter_ms = true", "jitter_ms is True: it must be a number"),
        (PLAIN + "mtu = 1400.5", "mtu is 1400.5: it must be a whole number"),
        (PLAIN + "half_duplex = 1", "half_duplex is 1: it must be true or false"),
        (PLAIN + "name = 3", "name is 3: it must be a text"),
        (PLAIN + "mode = 'drop'", "mode is drop: it must be queue or police"),
        (PLAIN + "mode = 'police'\nhalf_duplex = true", "half_duplex is True"),
        (PLAIN + "mode = 'police'\nburst_bytes = 100", "burst_bytes is 100: it must be at least one full packet"),
        (PLAIN + "outages = '20:5'", "outages is '20:5': it must be a list"),
        (PLAIN + "outages = ['20']", "START:DURATION"),
        (PLAIN + "outages = [{ start_s = 1 }]", "outages entry has no duration_s"),
        (PLAIN + "outages = [{ start_s = 1, length_s = 2 }]", "outages entry has no field 'length_s'"),
        (PLAIN + "on_off = { mean_up_s = 0, mean_down_s = 1 }", "on_off 0:1 makes no sense"),
        (PLAIN + "burst_loss = { p = 2, r = 1 }", "burst_loss p is 2"),
        (PLAIN + "loss_percent = 3\nburst_loss = { p = 0.1, r = 0.1 }", "loss_percent is 3: it must be the mean"),
        (PLAIN + "rate_up = 3", "rate_up is 3: it must be a table"),
        (PLAIN + "rate_up = { states = [] }", "give 2 to 64"),
        (PLAIN + "rate_up = { points = [[0, 1]] }", "rate_up needs either states, or points and period_s"),
        (PLAIN + "rate_up = { points = [[0]], period_s = 1 }", r"rate_up point is \[0\]: it must be \[seconds, kbps\]"),
        (PLAIN + "rate_up = { states = [{ kbps = 'a', mean_dwell_s = 1 }] }", "rate_up state kbps is 'a'"),
        (PLAIN + "rate_up = { trace = 'none.csv' }", "cannot read rate trace .*none.csv"),
        (PLAIN + "rate_up = { trace = 3 }", "rate_up trace is 3"),
        (PLAIN + "rate_up = { trace = 'a', scale = 3 }", "no field 'scale'"),
        ("preset = 'nope'", "no link preset 'nope'"),
        ("preset = 3", "preset is 3"),
    ],
)
def test_errors_name_the_file_and_the_field(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=rf"hut\.toml.*{says}"):
        read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read link file .*none\.toml"):
        read_link_file(tmp_path / "none.toml")


@given(specs())
def test_a_spec_reads_back_from_its_json(spec: LinkSpec) -> None:
    assert spec_from_table(json.loads(json.dumps(spec.as_json()))) == spec


def test_the_example_in_the_docs_is_a_link(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    spec = read(tmp_path, example.group(1))
    assert isinstance(spec.rate_down, MarkovRate)
    assert spec.burst_loss is not None
