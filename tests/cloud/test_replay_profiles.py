from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from acespec.proto.errors import UsageError
from acespec.proto.replay_profiles import DRAFTERS, VERIFIERS, find_drafter, find_verifier
from acespec.proto.timing_profile import TimingProfile

PROFILE = TimingProfile("mine", ((1, 0.1), (8, 0.12), (16, 0.2)), 0.01, 500.0, "made up", 0.0001)


@pytest.mark.parametrize("name", VERIFIERS)
def test_more_rows_and_more_sessions_never_cost_less(name: str) -> None:
    profile = find_verifier(name)
    times = [profile.step_s(rows) for rows in range(1, 600)]
    assert times[0] == profile.curve[0][1] > 0
    assert all(a <= b for a, b in pairwise(times))
    assert all(a < b for (a, _), (b, _) in pairwise(profile.curve)), "the curve's rows must rise"
    assert profile.step_s(9, 4) == pytest.approx(profile.step_s(9) + 3 * profile.session_s)
    assert profile.prefill_rate > 1 / profile.step_s(1), "a prompt is read faster than text is written"


def test_a_step_is_linear_between_points_and_goes_on_by_the_last_slope() -> None:
    for rows, seconds in ((0, 0.1), (1, 0.1), (5, 0.1 + 0.02 * 4 / 7), (8, 0.12), (12, 0.16), (16, 0.2), (32, 0.36)):
        assert PROFILE.step_s(rows) == pytest.approx(seconds)
    assert PROFILE.step_s(8, 3, 250) == pytest.approx(0.12 + 2 * 0.01 + 250 * 0.0001)
    assert PROFILE.prefill_s(50) == pytest.approx(0.1)


class TestKnee:
    def test_it_is_the_last_row_count_within_the_slack(self) -> None:
        assert PROFILE.knee() == 11, "0.1 x 1.5 = 0.15 s: three rows beyond 8"
        assert PROFILE.knee(1.0) == 1
        assert PROFILE.knee(2.0) == 16
        assert PROFILE.knee(3.0) == 26, "by the last slope"
        assert all(p.step_s(p.knee()) <= 1.5 * p.step_s(1) for p in VERIFIERS.values())
        assert all(p.step_s(p.knee() + 1) > 1.5 * p.step_s(1) for p in VERIFIERS.values())

    def test_a_flat_curve_s_ends_at_four_times_what_was_measured(self) -> None:
        assert TimingProfile("flat", ((1, 0.1), (64, 0.1)), 0.0, 1.0, "made up").knee() == 256

    def test_a_step_up_and_a_plain_behind_it(self) -> None:
        assert TimingProfile("dear", ((1, 0.1), (2, 0.19), (64, 0.2)), 0.0, 1.0, "made up").knee() == 1


class TestFiles:
    def test_what_is_saved_is_loaded(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.json"
        PROFILE.save(path)
        assert TimingProfile.load(path) == find_verifier(str(path)) == PROFILE
        path.rename(tmp_path / "mine")
        assert find_verifier(str(tmp_path / "mine")) == PROFILE, "whatever a file is called"

    def test_a_file_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot read"):
            find_verifier(str(tmp_path / "none.json"))
        with pytest.raises(UsageError, match="cannot write"):
            PROFILE.save(tmp_path / "none" / "mine.json")

    @pytest.mark.parametrize(
        "change",
        [
            {"curve": []},
            {"curve": [[1]]},
            {"curve": [[1, 0.2], [2, 0.1]]},
            {"curve": [[2, 0.1], [1, 0.2]]},
            {"curve": [[0, 0.1]]},
            {"curve": [[1, 0.0]]},
            {"curve": [[1, float("nan")]]},
            {"curve": [[1, 0.1], [2, float("inf")]]},
            {"session_s": -1.0},
            {"session_s": "much"},
            {"prefill_rate": 0.0},
            {"position_s": None},
            {"colour": 1},
        ],
        ids=str,
    )
    def test_what_is_no_profile_is_refused(self, change: dict[str, object], tmp_path: Path) -> None:
        path = tmp_path / "bad.json"
        PROFILE.save(path)
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(UsageError, match="make one with acespec-verifier bench"):
            TimingProfile.load(path)

    @pytest.mark.parametrize("text", ["", "[]", "{}", "3", "{", '{"curve": [[1, 0.1]]}'])
    def test_other_files_are_refused(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "bad.json"
        path.write_text(text)
        with pytest.raises(UsageError, match="is no timing profile"):
            TimingProfile.load(path)


def test_the_closed_forms_verifier_takes_25_ms_whatever_comes() -> None:
    free, serial = find_verifier("theory-25ms"), find_verifier("theory-25ms-serial")
    assert {free.step_s(rows, sessions) for rows in (1, 100, 256) for sessions in (1, 200)} == {0.025}
    assert serial.step_s(1) == 0.025
    assert serial.step_s(40, 8) == pytest.approx(8 * 0.025)
    assert free.knee() == 384


@pytest.mark.parametrize("profile", [*VERIFIERS.values(), *DRAFTERS.values()], ids=lambda p: p.name)
def test_every_profile_says_where_its_figures_come_from(profile: object) -> None:
    assert len(getattr(profile, "source", "")) > 20


def test_figures_that_others_published_are_kept() -> None:
    assert 1 / find_verifier("a100-70b").step_s(1) == pytest.approx(6.87, rel=0.01)
    assert find_verifier("h100-70b-fp8").step_s(1) == pytest.approx(0.025, rel=0.02)
    assert 250 <= 1 / find_drafter("m3-0.6b-4bit").token_s <= 400
    for name in ("h100-8b", "h100-70b-fp8"):
        assert 150 <= find_verifier(name).knee(1.001) <= 300, "weight-bound up to 200-300 rows, by the data sheet"


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="h100-8b, h100-70b-fp8"):
        find_verifier("tpu")
    with pytest.raises(UsageError, match=r"m3-0\.6b-4bit"):
        find_drafter("m9")
