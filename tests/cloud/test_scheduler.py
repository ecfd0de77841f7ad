"""The scheduler in virtual time: who takes part in which step, and why."""

from __future__ import annotations

import random

import pytest

from acespec.cloud.backend import Offer
from acespec.cloud.due import BURST_S, GRACE_S, TIMEOUT_S, DueClock, Knee
from acespec.cloud.overload import Overload
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.turn import Limits
from acespec.proto.messages import FinishReason
from acespec.proto.timing_profile import TimingProfile
from tests.cloud.engine_lab import PROMPT, VOCAB, Lab, answer, make_due, truth
from tests.cloud.toy import toy_text

SERIAL = TimingProfile("serial", ((1, 0.025), (64, 0.025)), 0.025, 10_000.0, "made up: each session costs a step")
FLAT = TimingProfile("flat", ((1, 0.025), (64, 0.025)), 0.0, 10_000.0, "made up: sessions ride along free")


def test_never_waits_until_drafts_come() -> None:
    lab = Lab(FreeRun.NEVER)
    turn = lab.open()
    lab.prefill()
    assert lab.step(0.1) == []
    lab.draft(turn, truth(turn, 3))
    assert lab.step(0.1) == ["drafts"]
    assert turn.tokens == [*PROMPT, *toy_text(PROMPT, 0, VOCAB, 5)]


def test_never_steps_on_request_but_only_at_the_tip() -> None:
    lab = Lab(FreeRun.NEVER)
    turn = lab.open()
    lab.prefill()
    behind = len(turn.tokens) - 1
    lab.table.offer(lab.now, turn.spec.session, Offer(0, 0, (), behind, behind, True))
    assert lab.step(0.1) == []
    lab.draft(turn, [], step=True)
    assert lab.step(0.1) == ["drafts"]
    assert lab.step(0.1) == [], "one request is one step"


def test_never_steps_after_a_timeout_so_that_nothing_deadlocks() -> None:
    lab = Lab(FreeRun.NEVER)
    lab.open()
    lab.prefill()
    assert lab.step(TIMEOUT_S / 2) == []
    assert lab.table.wake_at() == pytest.approx(TIMEOUT_S, abs=0.01)
    assert lab.step(TIMEOUT_S) == ["due"]


@pytest.mark.parametrize("policy", list(FreeRun))
def test_due_sessions_step_under_every_policy(policy: FreeRun) -> None:
    lab = Lab(policy)
    lab.open(rate=20.0)
    lab.prefill()
    assert lab.step(5.0) == ["due"]


def test_never_holds_the_promised_rate_at_few_steps() -> None:
    lab = Lab(FreeRun.NEVER)
    turn = lab.open(rate=10.0)
    lab.prefill()
    steps_before = lab.runner.steps
    for tick in range(1, 1000):
        lab.step(tick * 0.001)
    made = len(turn.tokens) - len(PROMPT)
    assert 9 - 10.0 * GRACE_S <= made <= 13
    assert lab.runner.steps - steps_before <= 12


def test_due_sessions_come_first_and_free_running_takes_what_is_left() -> None:
    lab = Lab(FreeRun.IDLE, max_rows=2)
    turns = [lab.open(seed, rate=rate) for seed, rate in enumerate([0.5, 50.0, 0.5])]
    lab.prefill()
    for turn in turns:
        make_due(turn, 9.0 if turn is turns[1] else 11.0)
    planned = lab.plan(9.0)
    assert planned is not None
    assert [p.reason for p in planned.parts] == ["due", "free run"]
    assert planned.parts[0].turn is turns[1]
    assert planned.rows == 2


def test_free_running_takes_turns() -> None:
    lab = Lab(FreeRun.ALWAYS, max_rows=1)
    turns = [lab.open(seed) for seed in range(3)]
    lab.prefill()
    before = [len(t.tokens) for t in turns]
    for tick in range(15):
        lab.step(1.0 + 0.01 * tick)
    made = [len(t.tokens) - b for t, b in zip(turns, before, strict=True)]
    assert max(made) - min(made) <= 1


def test_rows_never_exceed_the_budget_and_d_is_cut_to_fit() -> None:
    lab = Lab(FreeRun.ALWAYS, max_rows=10)
    turns = [lab.open(seed) for seed in range(4)]
    lab.prefill()
    for turn in turns:
        lab.draft(turn, truth(turn, 8))
    planned = lab.plan(0.5)
    assert planned is not None
    assert planned.rows <= 10
    assert len(planned.parts) == 4


def test_due_sessions_each_have_a_row_before_anyone_has_two() -> None:
    lab = Lab(FreeRun.NEVER, max_rows=6)
    turns = [lab.open(seed, rate=20.0, principal="one") for seed in range(6)]
    lab.prefill()
    for turn in turns:
        lab.draft(turn, truth(turn, 8))
    planned = lab.plan(9.0)
    assert planned is not None
    assert {p.turn for p in planned.parts} == set(turns)


def test_rows_are_shared_among_principals() -> None:
    """A crowd of one principal does not push another's single session out of the step."""
    lab = Lab(FreeRun.ALWAYS, max_rows=8)
    crowd = [lab.open(seed, rate=20.0, principal="crowd") for seed in range(12)]
    lone = lab.open(99, rate=20.0, principal="lone")
    lab.prefill()
    for turn in crowd:
        make_due(turn, 1.0)
    make_due(lone, 1.5)
    planned = lab.plan(2.0)
    assert planned is not None
    assert lone in {p.turn for p in planned.parts}
    assert planned.rows == 8, "what the lone one leaves goes to the crowd"


def test_what_is_not_due_never_makes_others_late() -> None:
    lab = Lab(FreeRun.IDLE, timing=SERIAL)
    urgent, ahead = lab.open(0, rate=20.0), lab.open(1, rate=20.0)
    lab.prefill()
    make_due(urgent, lab.now + 0.045)
    make_due(ahead, lab.now + 0.400)
    lab.draft(ahead, truth(ahead, 16))
    lab.draft(urgent, truth(urgent, 2))
    start = lab.now
    planned = lab.plan(start + 0.005)
    assert planned is not None
    assert [p.turn for p in planned.parts] == [urgent], "the one that is due first runs in the slack"
    urgent.attached = False
    planned = lab.plan(start + 0.005)
    assert planned is not None
    assert [p.turn for p in planned.parts] == [ahead]
    urgent.attached = True
    make_due(ahead, start + 0.050)
    make_due(urgent, start + 0.400)
    assert [p.turn for p in (lab.plan(start + 0.010) or planned).parts] == [ahead]


def test_sessions_that_cost_a_step_each_take_steps_of_their_own() -> None:
    lab = Lab(FreeRun.NEVER, timing=SERIAL)
    turns = [lab.open(seed, rate=20.0) for seed in range(3)]
    lab.prefill()
    for number, turn in enumerate(turns):
        make_due(turn, 1.0 + number * 0.001)
    planned = lab.plan(2.0)
    assert planned is not None
    assert [p.turn for p in planned.parts] == [turns[0]]


def test_sessions_that_ride_along_free_share_a_step() -> None:
    lab = Lab(FreeRun.NEVER, timing=FLAT)
    turns = [lab.open(seed, rate=20.0) for seed in range(3)]
    lab.prefill()
    planned = lab.plan(lab.now + 2.0)
    assert planned is not None
    assert {p.turn for p in planned.parts} == set(turns)


def test_who_would_be_late_next_rides_along_only_where_that_is_free() -> None:
    for timing, together in ((FLAT, True), (SERIAL, False)):
        lab = Lab(FreeRun.NEVER, timing=timing)
        first, second, third = (lab.open(seed, rate=20.0) for seed in range(3))
        lab.prefill()
        start = lab.now
        make_due(first, start + 0.020)
        make_due(second, start + 0.045)
        make_due(third, start + 0.090)
        planned = lab.plan(start)
        assert planned is not None
        assert planned.turns == ({first, second} if together else {first})


def test_a_long_prompt_has_its_share_and_no_more() -> None:
    """Due sessions go on while a prompt is read; it takes about a quarter of the time until it is itself overdue."""
    slow = TimingProfile("slow", ((1, 0.02), (64, 0.02)), 0.0, 1000.0, "made up")
    lab = Lab(FreeRun.NEVER, timing=slow, max_length=4096, pages=128, limits=Limits(max_length=4096))
    turn = lab.open(0, rate=25.0, max_tokens=400)
    lab.prefill()
    began = lab.now
    prompt = [n % VOCAB for n in range(2000)]
    late = lab.open(1, rate=0.0, prompt=prompt)
    while lab.now < began + 0.9:
        planned = lab.plan()
        if planned is None:
            lab.now += 0.002
            continue
        lab.run(planned)
    assert 100 < late.cached < 700
    assert len(turn.tokens) - len(PROMPT) >= 12
    while late.prefilling:
        planned = lab.plan()
        if planned is None:
            lab.now += 0.002
        else:
            lab.run(planned)
    assert lab.now < began + 4.5


def test_a_detached_session_takes_no_step_and_neither_does_one_far_ahead() -> None:
    lab = Lab(FreeRun.ALWAYS, limits=Limits(max_length=512, run_ahead=3))
    turn = lab.open(rate=20.0, max_tokens=100)
    lab.prefill()
    lab.table.attach(turn.spec.session, False)
    assert lab.step(5.0) == []
    lab.table.attach(turn.spec.session, True)
    for tick in range(20):
        lab.step(6.0 + tick)
    assert len(turn.tokens) == len(PROMPT) + 3
    lab.draft(turn, [])
    lab.step(50.0)
    assert len(turn.tokens) == len(PROMPT) + 4


def test_a_removed_turn_ignores_its_step_in_flight() -> None:
    lab = Lab(FreeRun.ALWAYS)
    turn = lab.open()
    lab.prefill()
    planned = lab.plan(1.0)
    assert planned is not None
    before = list(turn.tokens)
    assert lab.table.close(turn.spec.session) is not None
    assert lab.run(planned) == []
    assert turn.tokens == before
    assert lab.table.pages.in_use == 0


def test_every_policy_and_every_draft_gives_the_target_s_own_tokens() -> None:
    rng = random.Random(5)
    for policy in FreeRun:
        lab = Lab(policy, max_rows=12)
        turns = [lab.open(seed, rate=rate) for seed, rate in enumerate([0.0, 15.0, 0.0, 40.0])]
        while any(t.finish is None for t in turns):
            lab.now += rng.choice([0.001, 0.02, 0.3])
            for turn in turns:
                if turn.finish is None and rng.random() < 0.5:
                    right = truth(turn, rng.randrange(1, 9))
                    lab.draft(turn, [t if rng.random() < 0.8 else rng.randrange(VOCAB) for t in right])
            lab.step()
        for turn in turns:
            assert turn.tokens == answer(turn)
            assert turn.finish is FinishReason.LENGTH
        assert lab.table.pages.in_use == 0


def test_trees_give_the_target_s_own_tokens_and_a_right_sibling_counts() -> None:
    rng = random.Random(8)
    lab = Lab(FreeRun.ALWAYS, max_rows=40)
    turn = lab.open(max_tokens=60)
    lab.prefill()
    while turn.finish is None:
        nodes: list[tuple[int, int]] = []
        parent = -1
        for token in truth(turn, 5):
            wrong = [(token + n + 1) % VOCAB for n in range(3)]
            row = [*wrong[: rng.randrange(3)], token, *wrong[2:]]
            nodes += [(parent, t) for t in row]
            parent = len(nodes) - len(row) + row.index(token)
        lab.tree(turn, nodes)
        lab.step(lab.now + 0.01)
    assert turn.tokens == answer(turn)
    assert lab.runner.steps < 40, "right guesses that were not sent first are accepted too"


def test_max_tokens_holds_for_every_draft_length() -> None:
    """B26: a block never overruns the limit, max_tokens = 1 included."""
    for limit in (1, 2, 3, 7):
        lab = Lab(FreeRun.ALWAYS)
        turn = lab.open(max_tokens=limit)
        for tick in range(20):
            if turn.finish is None and not turn.prefilling and not turn.waiting:
                lab.draft(turn, truth(turn, 16))
            lab.step(float(tick))
        assert turn.tokens == answer(turn)


def test_the_context_limit_ends_a_turn_cleanly() -> None:
    lab = Lab(FreeRun.ALWAYS, max_length=20)
    turn = lab.open(max_tokens=1000)
    for tick in range(40):
        if turn.finish is None and not turn.prefilling and not turn.waiting:
            lab.draft(turn, truth(turn, 16))
        lab.step(float(tick))
    assert turn.finish is FinishReason.LENGTH
    assert len(turn.tokens) == 20


def test_due_clock_leaves_no_debt_after_an_outage_or_a_burst() -> None:
    clock = DueClock(0.0, 10.0)
    clock.committed(50.0, 1, 10.0)
    assert clock.due == pytest.approx(50.1 + GRACE_S), "a long prompt leaves no debt"
    clock.committed(100.0, 1, 10.0)
    assert clock.due == pytest.approx(100.0 - BURST_S + 0.1)
    clock.committed(100.0, 1000, 10.0)
    assert clock.due == pytest.approx(100.0 - BURST_S + 0.2 + 99.9)
    clock.committed(100.0, 1, 10.0)
    assert clock.due == pytest.approx(100.0 + BURST_S + 0.1)


def test_a_session_that_is_never_due_is_never_late() -> None:
    clock = DueClock(0.0, 0.0)
    clock.committed(3.0, 1, 0.0)
    assert clock.due == 3.0 + TIMEOUT_S
    assert clock.late(100.0) == 0.0


def test_the_knee_is_what_drafts_can_carry() -> None:
    knee = Knee()
    assert knee.rate(4.0, 0.025) == float("inf")
    now = 0.0
    for _ in range(100):
        knee.stepped(now)
        knee.ready(now + 0.175)
        now += 0.2
    assert knee.rate(4.0, 0.025) == pytest.approx(20.0)


def test_a_session_that_steps_before_its_drafts_come_has_a_lower_knee_than_it_seemed() -> None:
    knee = Knee()
    for tick in range(100):
        knee.stepped(tick * 0.05)
    assert knee.rate(4.0, 0.025) == float("inf"), "nothing is known without drafts"
    knee.ready(99 * 0.05 + 0.02)
    before = knee.rate(4.0, 0.025)
    for tick in range(100, 200):
        knee.stepped(tick * 0.05)
    assert knee.rate(4.0, 0.025) < 0.7 * before


def test_under_overload_rates_fall_to_the_knee_first_and_then_by_one_factor() -> None:
    overload = Overload()
    assert overload.rate(20.0, 8.0) == 20.0
    now = 0.0
    while overload.level < 1.0:
        now += 0.025
        overload.observe(now, 0.4, 0.025)
    assert overload.rate(20.0, 8.0) == pytest.approx(8.0, rel=0.05)
    assert overload.rate(6.0, 8.0) == pytest.approx(6.0, rel=0.05)
    while overload.level < 2.0:
        now += 0.025
        overload.observe(now, 0.4, 0.025)
    assert overload.rate(20.0, 8.0) / overload.rate(6.0, 8.0) == pytest.approx(8.0 / 6.0)
    assert overload.rate(0.0, 8.0) == 0.0
    while overload.level > 0.0:
        now += 0.025
        overload.observe(now, 0.0, 0.025)
    assert overload.rate(20.0, 8.0) == 20.0


def test_lateness_of_a_verifier_that_has_time_is_no_overload() -> None:
    overload = Overload()
    for tick in range(200):
        overload.observe(tick * 0.05, 0.4, 0.025)
    assert overload.level == 0.0


def run_until(lab: Lab, end: float) -> None:
    while lab.now < end:
        planned = lab.plan()
        if planned is None:
            lab.now += 0.001
        else:
            lab.run(planned)


def test_a_verifier_with_too_many_sessions_serves_all_alike() -> None:
    """Eight sessions at 20 tokens/s want four times what 25 ms a step can give; none starves."""
    lab = Lab(FreeRun.NEVER, timing=SERIAL)
    turns = [lab.open(seed, rate=20.0, max_tokens=400) for seed in range(8)]
    lab.prefill()
    run_until(lab, lab.now + 4.0)
    before = [len(t.tokens) for t in turns]
    run_until(lab, lab.now + 8.0)
    made = [len(t.tokens) - b for t, b in zip(turns, before, strict=True)]
    assert sum(made) >= 0.9 * 8.0 / 0.025
    assert max(made) <= 1.1 * min(made)
    assert lab.table.scheduler.overload.level > 1.0
