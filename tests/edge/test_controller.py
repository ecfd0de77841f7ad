"""Draft length decisions: fixed, and the rate rule over calibrated survival."""

from __future__ import annotations

import random

import pytest

from acespec.edge.calibration import DepthCalibration
from acespec.edge.controller import AUTO_CAP, AutoController, FixedController, make_controller
from acespec.edge.draft_tree import Outcome
from acespec.proto.errors import UsageError


def test_fixed_drafts_its_number_whatever_the_chances() -> None:
    controller = FixedController(3)
    assert [controller.extend(depth, 1e-9).go for depth in range(5)] == [True, True, True, False, False]
    assert controller.keep(3, 0.0).go
    assert not controller.keep(4, 1.0).go


def test_zero_never_drafts() -> None:
    assert not FixedController(0).extend(0, 1.0).go


def test_auto_stops_where_a_token_no_longer_earns_its_time() -> None:
    controller = AutoController()
    controller.drafted(0.05, 10)
    for tick in range(50):
        controller.committed(tick * 0.025, 1, [])
    assert controller.threshold == pytest.approx(40 * 0.005, rel=0.05)
    assert controller.extend(3, 0.21).go
    assert not controller.extend(3, 0.19).go
    assert "0.190" in controller.extend(3, 0.19).reason


def test_a_burst_of_commits_does_not_look_like_a_high_rate() -> None:
    controller = AutoController()
    controller.drafted(0.01, 1)
    for tick in range(40):
        controller.committed(tick * 0.5, 5, [])
        controller.committed(tick * 0.5 + 0.001, 5, [])
    assert controller.threshold == pytest.approx(20 * 0.01, rel=0.3)


def test_auto_has_a_cap() -> None:
    controller = AutoController()
    assert controller.extend(AUTO_CAP - 1, 1.0).go
    assert not controller.extend(AUTO_CAP, 1.0).go


def test_claims_are_corrected_by_what_comes_true() -> None:
    calibration = DepthCalibration()
    dice = random.Random(1)
    for _ in range(400):
        calibration.observe(Outcome(1, 0.9, dice.random() < 0.3))
        calibration.observe(Outcome(2, 0.5, dice.random() < 0.5))
    assert calibration.estimate(1, 0.9) == pytest.approx(0.3, abs=0.15)
    assert calibration.estimate(2, 0.5) == pytest.approx(0.5, abs=0.15)
    assert calibration.estimate(5, 0.7) == 0.7
    assert calibration.estimate(2, 1.0) <= 1.0


def test_a_drafter_that_is_always_wrong_is_hardly_shipped_and_gets_another_chance() -> None:
    controller = AutoController()
    assert controller.keep(1, controller.confidence(1, 0.3)).go
    for _ in range(300):
        controller.committed(0.0, 1, [Outcome(1, 0.999, False)])
    distrust = controller.confidence(1, 0.1)
    assert not controller.keep(1, distrust).go
    controller.committed(0.0, 600, [])
    assert controller.keep(1, controller.confidence(1, 0.1)).go


def test_the_option_is_a_number_or_auto() -> None:
    assert isinstance(make_controller("auto"), AutoController)
    assert make_controller("5").cap == 5
    for bad in ("-1", "many", "2.5"):
        with pytest.raises(UsageError):
            make_controller(bad)
