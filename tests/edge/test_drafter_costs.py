"""The cost of drafting: measured within its budget, interpolated, and told to the controller before the first guess."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from acespec.edge.brain.controller import FixedController
from acespec.edge.brain.draft_worker import DraftWorker
from acespec.edge.drafters.base import TurnContext
from acespec.edge.drafters.cost_curve import CostCurve, measure_costs
from acespec.edge.drafters.hybrid import HybridDrafter
from acespec.edge.drafters.lm_drafter import LmDrafter
from acespec.edge.session import EdgeSession
from acespec.proto.sampling_params import SamplingParams
from tests.drafters import RandomDrafter


class Clockwork:
    """A logit source whose passes take `base` + `slope` seconds a row on its own clock."""

    widest_pass = 512

    def __init__(self, base: float, slope: float, first: float = 0.0) -> None:
        self.base, self.slope, self.first = base, slope, first
        self.now = 0.0
        self.path: list[int] = []

    @property
    def cached(self) -> int:
        return len(self.path)

    def logits_after(self, path: Sequence[int], should_stop: Callable[[], bool]) -> NDArray[np.float32]:
        self.now += self.base + self.slope * (len(path) - len(self.path)) + (0.0 if self.path else self.first)
        self.path = list(path)
        return np.zeros(8, np.float32)

    def rows(self, path: Sequence[int], start: int) -> Iterator[NDArray[np.float32]]:
        return iter(())

    def close(self) -> None:
        self.path = []


def measured(source: Clockwork, budget: float = 0.3) -> CostCurve:
    return measure_costs(source, lambda: source.now, budget)


def test_a_quick_model_is_measured_in_full_and_its_first_pass_forgiven() -> None:
    curve = measured(Clockwork(0.002, 0.001, first=5.0))
    assert [rows for rows, _ in curve.points] == [1, 2, 4, 8]
    for rows in (1, 2, 3, 6, 8, 20):
        assert curve.seconds(rows) == pytest.approx(0.002 + 0.001 * rows)
    assert str(curve) == "a forward pass takes 3 ms for 1, 4 ms for 2, 6 ms for 4, 10 ms for 8"


def test_a_slow_model_is_measured_once() -> None:
    source = Clockwork(0.2, 0.2)
    curve = measured(source)
    assert curve.points == ((1, pytest.approx(0.4)),)
    assert curve.seconds(3) == pytest.approx(1.2)
    assert source.now < 1.0


def test_more_rows_never_cost_less_than_one() -> None:
    assert CostCurve(((1, 0.1), (2, 0.01))).seconds(50) == 0.1


def test_the_controller_hears_the_cost_once_before_any_draft() -> None:
    source = Clockwork(0.002, 0.001)
    heard: list[float] = []

    async def work() -> float | None:
        drafter = HybridDrafter(RandomDrafter(), LmDrafter("clockwork", lambda: source))
        session = EdgeSession(fingerprint=bytes(16), vocab_size=8, controller=FixedController(4))
        worker = DraftWorker(drafter, session, on_drafts=lambda: None, on_cost=heard.append)
        running = asyncio.create_task(worker.run())
        for _ in range(2):
            worker.begin(TurnContext(SamplingParams(), 1, 2, 8))
            await asyncio.sleep(0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        known = drafter.proposal_s
        await worker.close()
        return known

    assert heard == [asyncio.run(work())] or len(heard) == 1
    assert heard[0] > 0
    assert source.path == []


def test_reading_a_long_prompt_is_no_part_of_a_proposals_time() -> None:
    drafter = LmDrafter("clockwork", lambda: Clockwork(0.002, 0.001))
    session = EdgeSession(fingerprint=bytes(16), vocab_size=8, controller=FixedController(4))
    worker = DraftWorker(drafter, session, on_drafts=lambda: None)
    assert worker._booked(5.0, 1) == 5.0
    drafter.costs = CostCurve(((1, 0.01),))
    assert worker._booked(5.0, 1) == pytest.approx(0.04)
    assert worker._booked(0.015, 2) == 0.015
