"""Rates: what is accepted, their means, and their integrals against sums over every nanosecond of small examples."""

from __future__ import annotations

from itertools import cycle, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.proto.errors import UsageError
from acespec.sim.curve import Curve, DrawnCurve, LoopedCurve, open_from
from acespec.sim.line import make_line
from acespec.sim.link import LinkDirection, LinkSpec, Passage
from acespec.sim.markov_rate import walk
from acespec.sim.rate import MarkovRate, RateState, RateTrace
from acespec.sim.units import MILLISECOND, SECOND

TRACE = RateTrace(((0, 100), (0.5, 0), (0.75, 20)), 1.0)
CHAIN = MarkovRate((RateState(80, 2.0), RateState(20, 1.0), RateState(0, 0.5)))

slots = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 5)), min_size=1, max_size=6).filter(
    lambda steps: any(rate for _, rate in steps)
)


@pytest.mark.parametrize("kind", ["looped", "drawn"])
@given(steps=slots, t=st.integers(0, 60), work=st.integers(1, 150))
def test_a_curve_is_the_sum_of_its_rates_and_its_inverse_is_rounded_up(
    kind: str, steps: list[tuple[int, int]], t: int, work: int
) -> None:
    curve: Curve = LoopedCurve(steps) if kind == "looped" else DrawnCurve(iter(cycle(steps)))
    one_period = [rate for length, rate in steps for _ in range(length)]
    by_nanosecond = [one_period[n % len(one_period)] for n in range(200 * len(one_period))]
    assert curve.carried_by(t) == sum(by_nanosecond[:t])
    done = curve.time_of(work)
    assert sum(by_nanosecond[: done - 1]) < work <= sum(by_nanosecond[:done])
    assert open_from(curve, t) == next(n for n in range(t, len(by_nanosecond)) if by_nanosecond[n])


def test_far_away_times_take_no_longer() -> None:
    curve = LoopedCurve(TRACE.steps())
    years = 10**9 * SECOND
    assert curve.carried_by(years) == 10**9 * curve.carried_by(SECOND)
    assert curve.time_of(curve.carried_by(years)) == years


def test_a_trace_has_a_mean_and_can_be_scaled_to_another() -> None:
    assert TRACE.mean_kbps == pytest.approx(55)
    assert TRACE.peak_kbps == 100
    scaled = TRACE.scale_to_mean_kbps(11)
    assert scaled.mean_kbps == pytest.approx(11)
    assert scaled.points == ((0.0, 20.0), (0.5, 0.0), (0.75, 4.0))
    assert scaled.period_s == TRACE.period_s
    with pytest.raises(UsageError, match="mean of 0 Kbps"):
        TRACE.scale_to_mean_kbps(0)


@pytest.mark.parametrize(
    ("points", "period", "says"),
    [
        ((), 1, "first point at 0"),
        (((1, 50),), 2, "first point at 0"),
        (((0, 50), (1, 50), (1, 60)), 2, "times must ascend"),
        (((0, 50), (2, 50)), 2, "times must ascend"),
        (((0, 50),), 0, "period_s is 0"),
        (((0, 50),), float("nan"), "period_s"),
        (((0, -1),), 1, "-1 Kbps at 0 s"),
        (((0, float("nan")),), 1, "nan Kbps"),
        (((0, 0), (1, 0)), 2, "never carries"),
        (((0, 0.0001),), 2, "never carries"),
    ],
)
def test_a_senseless_trace_is_refused(points: tuple[tuple[float, float], ...], period: float, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        RateTrace(points, period)


@pytest.mark.parametrize(
    ("states", "says"),
    [
        ((RateState(50, 1),), "give 2 to 64"),
        ((RateState(50, 1), RateState(-1, 1)), "-1 Kbps"),
        ((RateState(50, 1), RateState(10, 0)), "mean_dwell_s of 0"),
        ((RateState(0, 1), RateState(0, 2)), "never carries"),
    ],
)
def test_a_senseless_chain_is_refused(states: tuple[RateState, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        MarkovRate(states)


def test_a_chain_spends_its_time_as_stated() -> None:
    total, spent, steps = 0, {80_000: 0, 20_000: 0, 0: 0}, walk(CHAIN, Random("a"))
    stays = []
    for length, bps in (next(steps) for _ in range(6000)):
        total += length
        spent[bps] += length
        stays.append((length, bps))
    assert spent[80_000] / total == pytest.approx(4 / 7, rel=0.06)
    assert spent[0] / total == pytest.approx(1 / 7, rel=0.06)
    assert sum(bps * length for length, bps in stays) / total / 1000 == pytest.approx(CHAIN.mean_kbps, rel=0.05)
    assert all(length % MILLISECOND == 0 and length > 0 for length, _ in stays)
    assert all(a != b for (_, a), (_, b) in pairwise(stays))
    fast = [length for length, bps in stays if bps == 80_000]
    mean = sum(fast) / len(fast) / SECOND
    spread = (sum((length / SECOND - mean) ** 2 for length in fast) / len(fast)) ** 0.5
    assert mean == pytest.approx(2, rel=0.1)
    assert spread == pytest.approx(2, rel=0.1)


def test_a_chain_starts_in_its_long_run_distribution() -> None:
    first = [next(walk(CHAIN, Random(f"start {seed}")))[1] for seed in range(2000)]
    assert first.count(80_000) / 2000 == pytest.approx(4 / 7, abs=0.04)


def test_directions_and_seeds_draw_different_walks() -> None:
    spec = LinkSpec(50, 50, 50).varied(rate_up=CHAIN, rate_down=CHAIN)
    other = LinkSpec(50, 50, 50, seed=1).varied(rate_up=CHAIN)
    lines = [make_line(spec, "up"), make_line(spec, "down"), make_line(other, "up")]
    assert len({line.carried(0, 20 * SECOND) for line in lines}) == 3
    assert make_line(spec, "up").carried(0, 20 * SECOND) == lines[0].carried(0, 20 * SECOND)


def test_a_packet_straddles_slots_and_waits_out_those_at_zero() -> None:
    """100 Kbps for half a second, nothing for a quarter, 20 Kbps for a quarter: 50,000 + 5,000 bits a second."""
    link = LinkDirection(LinkSpec(50, 50, 0, queue_bytes=20_000, overhead_bytes=0).varied(rate_up=TRACE), "up")
    first, second = link.offer(0, 6375), link.offer(0, 500)
    assert (first.start, first.finish) == (0, 800 * MILLISECOND)  # 50,000 bits, a pause, 1,000 bits in 50 ms
    assert (second.start, second.finish) == (800 * MILLISECOND, SECOND)
    late = link.offer(1600 * MILLISECOND, 125)
    assert isinstance(late, Passage)
    assert late.start == 1750 * MILLISECOND


def test_a_spec_states_the_mean_of_its_models() -> None:
    spec = LinkSpec(50, 50, 50).varied(rate_up=TRACE, rate_down=CHAIN)
    assert (spec.rate_up_kbps, spec.rate_down_kbps) == (TRACE.mean_kbps, CHAIN.mean_kbps)
    assert (spec.rate("up"), spec.peak_kbps("up"), spec.mean_kbps("down")) == (TRACE, 100, CHAIN.mean_kbps)
    constant = spec.varied(rate_up=40.0)
    assert (constant.rate("up"), constant.rate_up, constant.rate("down")) == (40, None, CHAIN)
    with pytest.raises(UsageError, match=r"rate_up_kbps is 50: it must be the mean of rate_up, 55"):
        LinkSpec(50, 50, 50, rate_up=TRACE)
