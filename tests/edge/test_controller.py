"""Draft length decisions: fixed, and the rate rule over calibrated survival."""

from __future__ import annotations

import pytest

from acespec.edge.controller import AUTO_CAP, FixedController
from acespec.edge.controllers import make_controller
from acespec.edge.rate_controller import RateController
from acespec.edge.survival import Guess, Outcome
from acespec.proto.errors import UsageError


def test_fixed_drafts_its_number_whatever_the_chances() -> None:
    controller = FixedController(3)
    assert [controller.extend(depth, 1e-9).go for depth in range(5)] == [True, True, True, False, False]
    assert controller.keep(3, 0.0).go
    assert not controller.keep(4, 1.0).go


def test_zero_never_drafts() -> None:
    assert not FixedController(0).extend(0, 1.0).go


def test_auto_stops_where_a_token_no_longer_earns_its_time() -> None:
    controller = RateController()
    controller.drafted(0.05, 10)
    for tick in range(50):
        controller.committed(tick * 0.025, 1, [])
    assert controller.threshold == pytest.approx(40 * 0.005, rel=0.05)
    assert controller.extend(3, 0.21).go
    assert not controller.extend(3, 0.19).go
    assert "0.190" in controller.extend(3, 0.19).reason


def test_a_burst_of_commits_does_not_look_like_a_high_rate() -> None:
    controller = RateController()
    controller.drafted(0.01, 1)
    for tick in range(40):
        controller.committed(tick * 0.5, 5, [])
        controller.committed(tick * 0.5 + 0.001, 5, [])
    assert controller.threshold == pytest.approx(20 * 0.01, rel=0.3)


def test_auto_has_a_cap() -> None:
    controller = RateController()
    assert controller.extend(AUTO_CAP - 1, 1.0).go
    assert not controller.extend(AUTO_CAP, 1.0).go


def test_a_drafter_that_is_always_wrong_is_hardly_shipped_and_gets_another_chance() -> None:
    controller = RateController()
    assert controller.keep(1, controller.confidence(Guess("lm", 1, 0.3))).go
    for _ in range(300):
        controller.committed(0.0, 1, [Outcome(Guess("lm", 1, 0.999), 0.9, False)])
    distrust = controller.confidence(Guess("lm", 1, 0.1))
    assert not controller.keep(1, distrust).go
    controller.committed(0.0, 600, [])
    assert controller.keep(1, controller.confidence(Guess("lm", 1, 0.1))).go


def test_the_option_is_a_number_or_auto() -> None:
    assert isinstance(make_controller("auto"), RateController)
    assert make_controller("5").cap == 5
    for bad in ("-1", "many", "2.5"):
        with pytest.raises(UsageError):
            make_controller(bad)
