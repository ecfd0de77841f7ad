"""Draft length decisions: fixed, and the rate rule over calibrated survival."""

from __future__ import annotations

import random
from typing import TypeVar

import pytest

from acespec.edge.brain.adaptive import AdaptiveController
from acespec.edge.brain.confidence_controller import LEAST, ConfidenceController
from acespec.edge.brain.controller import AUTO_CAP, FixedController
from acespec.edge.brain.controllers import make_controller
from acespec.edge.brain.prices import Prices
from acespec.edge.brain.rate_controller import RateController
from acespec.edge.brain.survival import Guess, Outcome
from acespec.edge.brain.tree_shape import TreeShape, tree_shape
from acespec.edge.brain.ucb_controller import UcbController
from acespec.proto.errors import UsageError

A = TypeVar("A", bound=AdaptiveController)


def test_fixed_drafts_its_number_whatever_the_chances() -> None:
    controller = FixedController(3)
    assert [controller.extend(depth, 1e-9).go for depth in range(5)] == [True, True, True, False, False]
    assert controller.keep(3, 0.0).go
    assert not controller.keep(4, 1.0).go


def test_zero_never_drafts() -> None:
    assert not FixedController(0).extend(0, 1.0).go


def after_commits(controller: A, every: float, draft_s: float, tokens: int = 1) -> A:
    """A commit of `tokens` each `every` seconds, a proposal in `draft_s`."""
    for tick in range(60):
        controller.drafted(draft_s, 1)
        controller.committed(tick * every, tokens, [])
    return controller


def test_rate_stops_where_a_token_no_longer_earns_its_time() -> None:
    controller = after_commits(RateController(), every=0.025, draft_s=0.02, tokens=2)
    assert controller.gained == pytest.approx(40, rel=0.05), "of 80 tokens/s a step brings one each"
    assert controller.threshold == pytest.approx(40 * 0.02 * 0.8 / 2, rel=0.05)
    assert controller.extend(3, 0.35).go
    assert not controller.extend(3, 0.3).go
    assert "0.300" in controller.extend(3, 0.3).reason
    assert controller.extend(3, 0.35).value == pytest.approx(0.03, abs=0.02)
    assert controller.extend(3, 0.05, Prices(waits=True)).go, "while the cloud waits, drafting delays nothing"


def test_rate_finds_that_drafting_does_not_pay_where_the_cloud_outruns_the_drafter() -> None:
    controller = after_commits(RateController(), every=0.0075, draft_s=0.046)
    assert not controller.extend(0, 1.0).go
    assert controller.extend(0, 1.0, Prices(waits=True)).go
    assert after_commits(RateController(), every=0.1, draft_s=0.046).extend(0, 1.0).go


def test_a_burst_of_commits_does_not_look_like_a_high_rate() -> None:
    controller = RateController()
    controller.drafted(0.01, 1)
    for tick in range(40):
        controller.committed(tick * 0.5, 5, [])
        controller.committed(tick * 0.5 + 0.001, 5, [])
    assert controller.output_rate == pytest.approx(20, rel=0.3)


def test_a_node_is_shipped_while_its_gain_beats_the_price_of_its_bits() -> None:
    controller = after_commits(RateController(), every=0.025, draft_s=0.001, tokens=2)
    narrow, wide = Prices(link_rate=600.0), Prices(link_rate=60_000.0)
    assert controller.ship(2, 0.3, 2.5, narrow).go, "40 tokens/s gained x 4.2 ms = 0.17"
    assert not controller.ship(2, 0.1, 2.5, narrow).go
    assert controller.ship(2, 0.1, 2.5, wide).go
    assert controller.ship(2, 0.1, 2.5, Prices(link_rate=600.0, waits=True)).go, "nobody waits for the message"
    assert not controller.ship(2, 0.004, 0.0).go


def test_a_message_must_gain_more_than_it_delays() -> None:
    controller = after_commits(RateController(), every=0.025, draft_s=0.001, tokens=2)
    price = Prices(link_rate=6250.0)
    assert controller.send(0.25, 100, price).go, "40 tokens/s gained x 16 ms x a chance of .64 that a commit comes / 2"
    assert not controller.send(0.15, 100, price).go
    assert controller.send(0.15, 100).go, "nothing is known of the link"
    assert not controller.send(0.04, 100).go, "headers cost in any case"
    assert after_commits(RateController(), every=0.025, draft_s=0.001).send(0.15, 100, price).go, "nothing to lose yet"


def test_confidence_believes_the_drafter_down_to_its_limits() -> None:
    controller = ConfidenceController()
    assert controller.confidence(Guess("lm", 1, 0.7)) == 0.7
    assert not controller.extend(1, controller.confidence(Guess("lm", 1, LEAST))).go, "behind q <= R2 a draft ends"
    after_commits(controller, every=0.025, draft_s=0.01)
    assert controller.extend(3, 0.45).go
    assert not controller.extend(3, 0.35).go, "R1 = 40 tokens/s x 10 ms"
    assert not controller.extend(AUTO_CAP, 1.0).go


@pytest.mark.parametrize(
    ("a", "cycle", "draft_s", "nothing"),
    [(0.8, 0.12, 0.005, False), (0.8, 0.4, 0.005, False), (0.6, 0.12, 0.005, False), (0.3, 0.03, 0.03, True)],
)
def test_ucb_finds_about_the_best_length(a: float, cycle: float, draft_s: float, nothing: bool) -> None:
    """The optimum of (k t_d + C) / E, and D = 0 where the cloud alone (two thirds of C here) is cheaper."""
    dice = random.Random(2)
    controller = UcbController()
    prices = Prices(cycle=cycle / 3, verify=cycle * 2 / 3)
    played = []
    for tick in range(1500):
        controller.drafted(draft_s, 1)
        length = 0
        while controller.extend(length, 1.0, prices).go:
            length += 1
        played.append(length)
        rights = [dice.random() < a for _ in range(length)]
        reached = next((n + 1 for n, right in enumerate(rights) if not right), length)
        outcomes = [Outcome(Guess("lm", n + 1, a), a, rights[n]) for n in range(reached)]
        controller.committed(tick * 0.1, reached + 1, outcomes)

    def cost(length: int) -> float:
        expected = sum(a**depth for depth in range(length + 1))
        return (length * draft_s + cycle) / expected if length else cycle * 2 / 3

    least = min(map(cost, range(AUTO_CAP + 1)))
    assert sum(map(cost, played[700:])) / len(played[700:]) <= 1.15 * least
    assert (sorted(played[700:])[400] == 0) == nothing


def test_auto_has_a_cap() -> None:
    controller = RateController()
    assert controller.extend(AUTO_CAP - 1, 1.0).go
    assert not controller.extend(AUTO_CAP, 1.0).go


def test_a_drafter_that_is_always_wrong_is_hardly_shipped_and_gets_another_chance() -> None:
    controller = RateController()
    assert controller.send(4 * controller.confidence(Guess("lm", 1, 0.3)), 100).go
    for _ in range(300):
        controller.committed(0.0, 1, [Outcome(Guess("lm", 1, 0.999), 0.9, False)])
    distrust = controller.confidence(Guess("lm", 1, 0.1))
    assert not controller.send(4 * distrust, 100).go
    controller.committed(0.0, 600, [])
    assert controller.send(4 * controller.confidence(Guess("lm", 1, 0.1)), 100).go


def test_the_options_name_a_controller() -> None:
    assert isinstance(make_controller("auto"), RateController)
    assert isinstance(make_controller("auto", "rate"), RateController)
    assert isinstance(make_controller("ucb"), UcbController)
    assert isinstance(make_controller("auto", "confidence"), ConfidenceController)
    assert make_controller("5").cap == 5
    assert isinstance(make_controller("5"), FixedController)
    assert make_controller("auto", "fixed:3").cap == 3
    assert make_controller("7", "rate").cap == 7
    for bad in ("-1", "many", "2.5"):
        with pytest.raises(UsageError):
            make_controller(bad)
    for length, name in (("auto", "clever"), ("5", "fixed:3"), ("auto", "fixed:"), ("x", "rate")):
        with pytest.raises(UsageError):
            make_controller(length, name)


def test_the_shape_of_a_draft_is_an_option() -> None:
    assert tree_shape("off") == TreeShape(1)
    assert tree_shape("siblings:3") == TreeShape(3)
    assert tree_shape("on").branches
    for bad in ("", "siblings", "siblings:0", "siblings:9", "siblings:x", "4"):
        with pytest.raises(UsageError, match="siblings:K"):
            tree_shape(bad)
