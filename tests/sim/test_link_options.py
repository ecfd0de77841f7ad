"""The options of `acespec-sim link` as a spec: what overrides what, and what excludes what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from acespec.proto.errors import UsageError
from acespec.sim.link import LinkSpec
from acespec.sim.link_options import LinkOptions
from acespec.sim.loss import GilbertElliott
from acespec.sim.outages import OnOff, Outage
from acespec.sim.rate import RateTrace

from .test_cli import acespec_sim


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "bus.csv"
    path.write_text("t,kbps\n0,100\n1,300\n")
    return path


@pytest.fixture
def link_file(tmp_path: Path) -> Path:
    path = tmp_path / "hut.toml"
    path.write_text('preset = "gprs"\nseed = 5\noutages = ["1:2"]\non_off = { mean_up_s = 9, mean_down_s = 1 }\n')
    return path


def test_nothing_given_is_the_default_preset() -> None:
    assert LinkOptions().spec() == LinkSpec.preset("wan50")


def test_traces_replace_the_rates_scaled_or_not(trace: Path) -> None:
    spec = LinkOptions("wan50", rate_trace_up=trace).spec()
    assert spec == LinkSpec.preset("wan50").varied(rate_up=RateTrace(((0, 100), (1, 300)), 2))
    scaled = LinkOptions("wan50", rate_trace_up=trace, rate_trace_down=trace, scale_to_kbps=50).spec()
    assert scaled.rate_up == scaled.rate_down == RateTrace(((0, 25), (1, 75)), 2)


def test_models_of_loss_outages_and_policing() -> None:
    options = LinkOptions("gprs", loss_model="ge:0.01:0.25", on_off="120:5", police=True, burst_bytes=4000)
    base = LinkSpec.preset("gprs").varied(loss=GilbertElliott(0.01, 0.25))
    assert options.spec() == replace(base, on_off=OnOff(120, 5), mode="police", burst_bytes=4000)
    assert LinkOptions("gprs", loss_model="iid:3").spec().loss_percent == 3


def test_a_link_file_is_a_start_like_a_preset(link_file: Path) -> None:
    spec = LinkOptions(link_file=link_file, rate_up_kbps=10).spec()
    assert (spec.name, spec.rate_up_kbps, spec.rate_down_kbps, spec.seed) == ("hut", 10, 50, 5)
    assert (spec.outages, spec.on_off) == ((Outage(1, 2),), OnOff(9, 1))
    other = LinkOptions(link_file=link_file, seed=0, outages=("3:4",)).spec()
    assert (other.seed, other.outages) == (0, (Outage(3, 4),))


def test_what_excludes_each_other_is_said(trace: Path, link_file: Path) -> None:
    for options, says in (
        (LinkOptions("wan50", link_file=link_file), "--link and --preset"),
        (LinkOptions(rate_up_kbps=3, rate_trace_up=trace), "--rate-up-kbps and --rate-trace-up"),
        (LinkOptions(scale_to_kbps=3), "--scale-to-kbps scales traces"),
        (LinkOptions(loss_percent=1, loss_model="iid:1"), "--loss-percent and --loss-model"),
        (LinkOptions("nbiot", police=True), "half_duplex"),
    ):
        with pytest.raises(UsageError, match=says):
            options.spec()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (LinkOptions(link_file=Path("none.toml")), "cannot read link file none.toml"),
        (LinkOptions(loss_model="often"), "write iid:PERCENT"),
        (LinkOptions(on_off="5"), "MEAN_UP:MEAN_DOWN"),
        (LinkOptions(rate_trace_up=Path("none.csv")), "cannot read rate trace none.csv"),
    ],
)
def test_bad_options_say_what_to_write(options: LinkOptions, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        options.spec()


def test_the_command_passes_its_options_on(link_file: Path) -> None:
    """Every option is taken; the last error is that of a port that cannot be had."""
    options = ["--link", link_file, "--scale-to-kbps", "40", "--loss-model", "ge:0.01:0.25", "--on-off", "120:5"]
    traces = ["--rate-trace-up", link_file.with_name("bus.csv"), "--rate-trace-down", link_file.with_name("bus.csv")]
    link_file.with_name("bus.csv").write_text("0,100\n1,300\n")
    more = ["--police", "--burst-bytes", "4000", "--seed", "3", "--no-status"]
    done = acespec_sim(
        "link", "--listen", "203.0.113.1:1", "--to", "127.0.0.1:9", *map(str, [*options, *traces, *more])
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot listen on 203.0.113.1:1")
    assert done.stderr.count("\n") == 1
