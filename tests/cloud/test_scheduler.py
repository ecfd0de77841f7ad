from __future__ import annotations

import random

import pytest

from acespec.cloud.acceptance import ALLOWANCE, PRIOR, SAVINGS, SHARE, Acceptance, CostCurve
from acespec.cloud.backend import Offer, TurnSpec
from acespec.cloud.due import BURST_S, DueClock
from acespec.cloud.scheduler import TIMEOUT_S, FreeRun, Scheduler
from acespec.cloud.stops import StopRule
from acespec.cloud.turn import Limits, Turn
from acespec.proto.messages import FinishReason
from acespec.proto.nodes import ROOT, Node
from acespec.proto.sampling_params import SamplingParams
from tests.cloud.toy import ToyRunner, toy_text

VOCAB = 64
PROMPT = (3, 1, 4, 1, 5)


def make_turn(
    runner: ToyRunner, *, rate: float = 0.0, max_tokens: int = 24, seed: int = 0, limits: Limits | None = None
) -> Turn:
    spec = TurnSpec((f"p{seed}", bytes(16)), PROMPT, len(PROMPT), SamplingParams(), seed, max_tokens, rate=rate)
    limits = limits or Limits(max_length=512)
    return Turn(spec, runner.allocate(), 0, StopRule((), (), max_tokens), limits, Acceptance(limits.max_draft), 0.0)


def make(free_run: FreeRun, rates: list[float], **kwargs: int) -> tuple[ToyRunner, Scheduler, list[Turn]]:
    runner = ToyRunner(VOCAB)
    scheduler = Scheduler(CostCurve(runner.cost_curve()), free_run=free_run, **kwargs)
    turns = [make_turn(runner, rate=rate, seed=i) for i, rate in enumerate(rates)]
    for turn in turns:
        scheduler.add(turn)
    return runner, scheduler, turns


def step(runner: ToyRunner, scheduler: Scheduler, now: float) -> list[str]:
    planned = scheduler.plan(now)
    if planned is None:
        return []
    scheduler.complete(planned, runner.step(planned.blocks), 0.001, now)
    return [part.reason for part in planned.parts]


def prefill(runner: ToyRunner, scheduler: Scheduler) -> None:
    while any(r == "prefill" for r in step(runner, scheduler, 0.0)):
        pass


def offer(turn: Turn, tokens: list[int], first_id: int = 0, step: bool = False) -> None:
    nodes = tuple(Node(ROOT if i == 0 else first_id + i - 1, t) for i, t in enumerate(tokens))
    turn.offer(Offer(0, first_id, nodes, len(turn.tokens), len(turn.tokens), step))


def test_never_waits_until_drafts_come() -> None:
    runner, scheduler, (turn,) = make(FreeRun.NEVER, [0.0])
    prefill(runner, scheduler)
    assert step(runner, scheduler, 0.1) == []
    offer(turn, toy_text(turn.tokens, 0, VOCAB, 3))
    assert step(runner, scheduler, 0.1) == ["drafts"]
    assert turn.tokens == [*PROMPT, *toy_text(PROMPT, 0, VOCAB, 5)]


def test_never_steps_on_request_but_only_at_the_tip() -> None:
    runner, scheduler, (turn,) = make(FreeRun.NEVER, [0.0])
    prefill(runner, scheduler)
    stale = Offer(0, 0, (), len(turn.tokens) - 1, len(turn.tokens) - 1, True)
    turn.offer(stale)
    assert step(runner, scheduler, 0.1) == []
    offer(turn, [], step=True)
    assert step(runner, scheduler, 0.1) == ["drafts"]
    assert step(runner, scheduler, 0.1) == [], "one request is one step"


def test_never_steps_after_a_timeout_so_that_nothing_deadlocks() -> None:
    runner, scheduler, _ = make(FreeRun.NEVER, [0.0])
    prefill(runner, scheduler)
    assert step(runner, scheduler, TIMEOUT_S / 2) == []
    assert scheduler.wake_at() == pytest.approx(TIMEOUT_S)
    assert step(runner, scheduler, TIMEOUT_S) == ["drafts"]


@pytest.mark.parametrize("policy", list(FreeRun))
def test_due_sessions_step_under_every_policy(policy: FreeRun) -> None:
    runner, scheduler, _ = make(policy, [20.0])
    prefill(runner, scheduler)
    assert step(runner, scheduler, 5.0) == ["due"]


def test_never_holds_the_promised_rate_at_few_steps() -> None:
    runner, scheduler, (turn,) = make(FreeRun.NEVER, [10.0])
    prefill(runner, scheduler)
    steps_before = runner.steps
    for tick in range(1, 1000):
        step(runner, scheduler, tick * 0.001)
    made = len(turn.tokens) - len(PROMPT)
    assert 9 <= made <= 13
    assert runner.steps - steps_before <= 12


def test_idle_serves_due_sessions_first_and_free_runs_in_what_is_left() -> None:
    runner, scheduler, turns = make(FreeRun.IDLE, [0.0, 50.0, 0.0], max_rows=2)
    prefill(runner, scheduler)
    planned = scheduler.plan(9.0)
    assert planned is not None
    assert [p.reason for p in planned.parts] == ["due", "free run"]
    assert planned.parts[0].turn is turns[1]
    assert planned.rows == 2


def test_free_running_takes_turns() -> None:
    runner, scheduler, turns = make(FreeRun.ALWAYS, [0.0, 0.0, 0.0], max_rows=1)
    prefill(runner, scheduler)
    before = [len(t.tokens) for t in turns]
    for tick in range(15):
        step(runner, scheduler, 1.0 + tick)
    made = [len(t.tokens) - b for t, b in zip(turns, before, strict=True)]
    assert max(made) - min(made) <= 1


def test_rows_never_exceed_the_budget_and_d_is_cut_to_fit() -> None:
    runner, scheduler, turns = make(FreeRun.ALWAYS, [0.0] * 4, max_rows=10)
    prefill(runner, scheduler)
    for turn in turns:
        offer(turn, toy_text(turn.tokens, turn.spec.seed, VOCAB, 8))
    planned = scheduler.plan(1.0)
    assert planned is not None
    assert planned.rows <= 10
    assert len(planned.parts) >= 2


def test_a_detached_session_takes_no_step_and_neither_does_one_far_ahead() -> None:
    runner, scheduler, (turn,) = make(FreeRun.ALWAYS, [20.0])
    prefill(runner, scheduler)
    turn.attached = False
    assert step(runner, scheduler, 5.0) == []
    turn.attached = True
    tight = make_turn(runner, seed=9, limits=Limits(max_length=512, run_ahead=3), max_tokens=100)
    scheduler.remove(turn)
    scheduler.add(tight)
    for tick in range(20):
        step(runner, scheduler, 6.0 + tick)
    assert len(tight.tokens) == len(PROMPT) + 3
    tight.offer(Offer(0, 0, (), len(tight.tokens), len(tight.tokens)))
    step(runner, scheduler, 50.0)
    assert len(tight.tokens) == len(PROMPT) + 4


def test_a_removed_turn_ignores_its_step_in_flight() -> None:
    runner, scheduler, (turn,) = make(FreeRun.ALWAYS, [0.0])
    prefill(runner, scheduler)
    planned = scheduler.plan(1.0)
    assert planned is not None
    before = list(turn.tokens)
    scheduler.remove(turn)
    assert scheduler.complete(planned, runner.step(planned.blocks), 0.001, 1.0) == []
    assert turn.tokens == before


def test_every_policy_and_every_draft_gives_the_target_s_own_tokens() -> None:
    rng = random.Random(5)
    for policy in FreeRun:
        runner, scheduler, turns = make(policy, [0.0, 15.0, 0.0, 40.0], max_rows=12)
        now, ids = 0.0, dict.fromkeys(range(4), 0)
        while any(t.finish is None for t in turns):
            now += rng.choice([0.001, 0.02, 0.3])
            for i, turn in enumerate(turns):
                if turn.finish is None and rng.random() < 0.5:
                    truth = toy_text(turn.tokens, i, VOCAB, rng.randrange(1, 9))
                    draft = [t if rng.random() < 0.8 else rng.randrange(VOCAB) for t in truth]
                    offer(turn, draft, ids[i])
                    ids[i] += len(draft)
            step(runner, scheduler, now)
        for i, turn in enumerate(turns):
            assert turn.tokens == [*PROMPT, *toy_text(PROMPT, i, VOCAB, 24)]
            assert turn.finish is FinishReason.LENGTH
            assert turn.cached == len(turn.tokens) - 1


def test_max_tokens_holds_for_every_draft_length() -> None:
    """B26: a block never overruns the limit, max_tokens = 1 included."""
    for limit in (1, 2, 3, 7):
        runner = ToyRunner(VOCAB)
        scheduler = Scheduler(CostCurve(runner.cost_curve()), free_run=FreeRun.ALWAYS)
        turn = make_turn(runner, max_tokens=limit)
        scheduler.add(turn)
        for tick in range(20):
            if turn.finish is None and not turn.prefilling:
                offer(turn, toy_text(turn.tokens, 0, VOCAB, 16), 16 * tick)
            step(runner, scheduler, float(tick))
        assert turn.tokens == [*PROMPT, *toy_text(PROMPT, 0, VOCAB, limit)]


def test_the_context_limit_ends_a_turn_cleanly() -> None:
    runner = ToyRunner(VOCAB, max_length=20)
    scheduler = Scheduler(CostCurve(runner.cost_curve()), free_run=FreeRun.ALWAYS)
    turn = make_turn(runner, max_tokens=1000, limits=Limits(max_length=20))
    scheduler.add(turn)
    for tick in range(40):
        if turn.finish is None and not turn.prefilling:
            offer(turn, toy_text(turn.tokens, 0, VOCAB, 16), 16 * tick)
        step(runner, scheduler, float(tick))
    assert turn.finish is FinishReason.LENGTH
    assert len(turn.tokens) == 20


def test_due_clock_leaves_no_debt_after_an_outage_or_a_burst() -> None:
    clock = DueClock(0.0, 10.0)
    clock.committed(100.0, 1)
    assert clock.due == pytest.approx(100.0 - BURST_S + 0.1)
    clock.committed(100.0, 1000)
    assert clock.due == pytest.approx(100.0 - BURST_S + 0.2 + 99.9)
    clock.committed(100.0, 1)
    assert clock.due == pytest.approx(100.0 + BURST_S + 0.1)
    assert not DueClock(0.0, 0.0).is_due(1e9)


class TestAcceptance:
    cost = CostCurve([(1, 1.0), (4, 1.0), (16, 2.5), (64, 10.0)])

    def test_free_rows_are_always_taken(self) -> None:
        hopeless = Acceptance(16)
        for _ in range(200):
            hopeless.observe(8, 0)
        assert hopeless.depth_that_pays(16, self.cost) == 3

    def test_a_useless_drafter_is_cut_and_probed(self) -> None:
        steep = CostCurve([(1, 1.0), (64, 64.0)])
        hopeless = Acceptance(16)
        for _ in range(200):
            hopeless.observe(8, 0)
        depths = [hopeless.depth_that_pays(16, steep) for _ in range(64)]
        assert depths.count(0) == 60
        assert depths.count(1) == 4

    def test_a_good_drafter_gets_deep_drafts(self) -> None:
        good = Acceptance(16)
        for _ in range(200):
            good.observe(16, 16)
        assert good.depth_that_pays(16, self.cost) == 15, "row 17 costs more than its token is worth"
        assert good.depth_that_pays(5, self.cost) == 5

    @pytest.mark.parametrize("curve", [[(1, 1.0), (2, 1.9), (64, 8.0)], [(1, 1.0), (64, 4.0)], [(1, 1.0), (64, 64.0)]])
    @pytest.mark.parametrize("right", [0.0, 0.05, 0.3])
    def test_drafts_never_cost_more_than_their_budget(self, curve: list[tuple[int, float]], right: float) -> None:
        cost, estimate, dice = CostCurve(curve), Acceptance(16), random.Random(1)
        spent = 0.0
        for steps in range(1, 2001):
            depth = estimate.depth_that_pays(16, cost)
            accepted = next((i for i in range(depth) if dice.random() >= right), depth)
            spent += cost(depth + 1) / cost(1) - 1 - accepted
            estimate.observe(depth, accepted)
            assert spent <= ALLOWANCE + SHARE * steps

    def test_a_drafter_that_turns_bad_lives_on_its_savings_only(self) -> None:
        steep, estimate = CostCurve([(1, 1.0), (64, 16.0)]), Acceptance(16)
        for _ in range(500):
            depth = estimate.depth_that_pays(16, steep)
            estimate.observe(depth, depth)
        spent = 0.0
        for steps in range(1, 500):
            depth = estimate.depth_that_pays(16, steep)
            spent += steep(depth + 1) - 1
            estimate.observe(depth, 0)
            assert spent <= SAVINGS + SHARE * steps

    def test_only_depths_that_were_reached_are_learned(self) -> None:
        estimate = Acceptance(8)
        for _ in range(100):
            estimate.observe(8, 2)
        assert estimate.survival(2) > 0.95
        assert estimate.survival(3) < 0.05
        assert estimate.survival(4) == pytest.approx(estimate.survival(3) * PRIOR)

    def test_the_curve_is_linear_between_and_beyond_its_points(self) -> None:
        assert self.cost(2) == 1.0
        assert self.cost(10) == pytest.approx(1.75)
        assert self.cost(128) == pytest.approx(20.0)
        assert CostCurve([(1, 2.0)])(9) == 2.0
