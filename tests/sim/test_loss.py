"""Invariant 11: losses, independent or in bursts, within their statistical bounds; and how they are written."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from scipy.stats import binom, chi2

from acespec.proto.errors import UsageError
from acespec.sim.link import Drop, LinkDirection, LinkSpec
from acespec.sim.loss import GilbertElliott, LossSpec, parse_loss
from acespec.sim.units import SECOND

PACKETS = 6000


def losses(loss: LossSpec, packets: int = PACKETS, seed: int = 3) -> list[bool]:
    link = LinkDirection(LinkSpec(1e6, 1e6, 1, seed=seed).varied(loss=loss), "up")
    return [isinstance(link.offer(i * SECOND, 100), Drop) for i in range(packets)]


@pytest.mark.parametrize("percent", [0.0, 0.5, 2.0, 30.0, 100.0])
def test_invariant_11_independent_loss_is_within_binomial_bounds(percent: float) -> None:
    lost = sum(losses(percent))
    low, high = binom.interval(0.999, PACKETS, percent / 100)
    assert low <= lost <= high
    if percent in (0, 100):
        assert lost == PACKETS * percent / 100


def test_invariant_11_independent_losses_have_no_memory() -> None:
    lost = losses(30.0)
    after_loss = [b for a, b in pairwise(lost) if a]
    low, high = binom.interval(0.999, len(after_loss), 0.3)
    assert low <= sum(after_loss) <= high


@pytest.mark.parametrize(("p", "r"), [(0.02, 0.25), (0.1, 0.5), (0.05, 1.0)])
def test_invariant_11_bursts_have_their_length_and_number(p: float, r: float) -> None:
    """With losses 1 and 0 a burst is a stay in the bad state: geometric, mean 1/r; gaps geometric, mean 1/p."""
    runs = [(lost, len(list(run))) for lost, run in groupby(losses(GilbertElliott(p, r)))][1:-1]
    for state, leave in ((True, r), (False, p)):
        lengths = [length for lost, length in runs if lost is state]
        # A stay of n packets is n - 1 refusals to leave and one leave: the leaves are binomial.
        low, high = binom.interval(0.999, sum(lengths), leave)
        assert low <= len(lengths) <= high
    if r < 1:
        assert_geometric([length for lost, length in runs if lost], r)


def assert_geometric(lengths: list[int], r: float) -> None:
    """Chi-square over lengths 1, 2, 3 and more."""
    counts = [sum(n == 1 for n in lengths), sum(n == 2 for n in lengths), sum(n > 2 for n in lengths)]
    expected = [len(lengths) * share for share in (r, r * (1 - r), (1 - r) ** 2)]
    statistic = sum((seen - mean) ** 2 / mean for seen, mean in zip(counts, expected, strict=True))
    assert statistic < chi2.ppf(0.999, 2)


def test_invariant_11_both_states_lose_as_stated() -> None:
    loss = GilbertElliott(0.02, 0.02, loss_bad=0.5, loss_good=0.1)
    assert loss.mean_percent == pytest.approx(30)
    assert sum(losses(loss, 20_000)) / 20_000 == pytest.approx(0.3, abs=0.04)


@pytest.mark.parametrize(("p", "r", "lost"), [(0.0, 0.5, 0), (0.5, 0.0, 400)])
def test_invariant_11_a_channel_that_cannot_leave_a_state_is_exact(p: float, r: float, lost: int) -> None:
    assert sum(losses(GilbertElliott(p, r), 400)) == lost


def test_the_first_packet_finds_the_long_run_distribution() -> None:
    loss = GilbertElliott(0.01, 0.03)
    first = sum(losses(loss, 1, seed)[0] for seed in range(1500))
    low, high = binom.interval(0.999, 1500, 0.25)
    assert low <= first <= high


def test_a_spec_states_the_mean_loss_of_its_model() -> None:
    spec = LinkSpec(50, 50, 50).varied(loss=GilbertElliott(0.01, 0.24))
    assert spec.loss_percent == pytest.approx(4)
    assert spec.varied(loss=1.0).loss == 1.0
    with pytest.raises(UsageError, match=r"loss_percent is 0\.0: it must be the mean of burst_loss, 4"):
        LinkSpec(50, 50, 50, burst_loss=GilbertElliott(0.01, 0.24))


def test_loss_models_are_written_in_one_word() -> None:
    assert parse_loss("iid:1.5") == 1.5
    assert parse_loss("ge:0.01:0.25") == GilbertElliott(0.01, 0.25)
    assert parse_loss("ge:0.01:0.25:0.8:0.001") == GilbertElliott(0.01, 0.25, 0.8, 0.001)


@pytest.mark.parametrize("text", ["", "2", "iid", "iid:a", "iid:1:2", "ge:0.1", "ge:0.1:0.2:0.3:0.4:0.5", "burst:1:2"])
def test_a_bad_loss_model_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="iid:PERCENT"):
        parse_loss(text)


@pytest.mark.parametrize(
    ("text", "field"),
    [("ge:1.1:0.5", "p is"), ("ge:0.5:-1", "r is"), ("ge:0:0", "p and r"), ("ge:.1:.1:nan", "loss_bad")],
)
def test_a_senseless_channel_is_refused_by_field(text: str, field: str) -> None:
    with pytest.raises(UsageError, match=field):
        parse_loss(text)
