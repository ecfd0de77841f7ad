from __future__ import annotations

from itertools import pairwise

import pytest

from acespec.cloud.acceptance import CostCurve
from acespec.proto.errors import UsageError
from acespec.proto.replay_profiles import DRAFTERS, VERIFIERS, find_drafter, find_verifier


@pytest.mark.parametrize("name", VERIFIERS)
def test_more_rows_and_more_sessions_never_cost_less(name: str) -> None:
    profile = find_verifier(name)
    times = [profile.step_s(rows) for rows in range(1, 600)]
    assert times[0] == profile.curve[0][1] > 0
    assert all(a <= b for a, b in pairwise(times))
    assert all(a < b for (a, _), (b, _) in pairwise(profile.curve)), "the curve's rows must rise"
    assert profile.step_s(9, 4) == pytest.approx(profile.step_s(9) + 3 * profile.session_s)
    assert profile.prefill_rate > 1 / profile.step_s(1), "a prompt is read faster than text is written"


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_profile_between_its_points_is_the_scheduler_s_curve(name: str) -> None:
    profile = find_verifier(name)
    curve = CostCurve(profile.curve)
    for rows in (1, 3, 5, 12, 100, 300, 900):
        assert profile.step_s(rows) == pytest.approx(curve(rows))


@pytest.mark.parametrize("profile", [*VERIFIERS.values(), *DRAFTERS.values()], ids=lambda p: p.name)
def test_every_profile_says_where_its_figures_come_from(profile: object) -> None:
    assert len(getattr(profile, "source", "")) > 20


def test_figures_that_others_published_are_kept() -> None:
    assert 1 / find_verifier("a100-70b").step_s(1) == pytest.approx(6.87, rel=0.01)
    assert find_verifier("h100-70b-fp8").step_s(1) == pytest.approx(0.025, rel=0.02)
    assert 250 <= 1 / find_drafter("m3-0.6b-4bit").token_s <= 400
    for name in ("h100-8b", "h100-70b-fp8"):
        knee = CostCurve([(rows, find_verifier(name).step_s(rows)) for rows in range(1, 400)]).knee(1.0)
        assert 150 <= knee <= 300, "weight-bound up to 200-300 rows, as the data sheet has it"


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="h100-8b, h100-70b-fp8"):
        find_verifier("tpu")
    with pytest.raises(UsageError, match=r"m3-0\.6b-4bit"):
        find_drafter("m9")
