from __future__ import annotations

import time

import pytest

from acespec.cloud.replay.runner import ReplayRunner
from acespec.cloud.runner import Block
from acespec.proto.errors import Exhausted, InvalidRequest
from acespec.proto.replay_pace import Pace
from acespec.proto.replay_profiles import VerifierProfile
from acespec.proto.replay_text import SyntheticText
from acespec.proto.sampling_params import SamplingParams

VOCAB = 1000
TEXT = SyntheticText(VOCAB)
PROFILE = VerifierProfile("test", ((1, 0.004), (9, 0.012)), session_s=0.002, prefill_rate=1000.0, source="made up")
SEED = 7
PROMPT = (1, 2, 3)


def make(**options: int) -> ReplayRunner:
    return ReplayRunner(TEXT, PROFILE, vocab_size=VOCAB, **options)


def block(slot: int, start: int, tokens: tuple[int, ...], sample_from: int = 0) -> Block:
    return Block(slot, start, tokens, (0,) * start, sample_from, SamplingParams(), SEED, len(PROMPT))


def truth(position: int) -> int:
    return TEXT.token(SEED, position, len(PROMPT))


def test_drafts_are_taken_as_long_as_they_match() -> None:
    runner = make()
    slot = runner.allocate()
    (drawn,) = runner.step([block(slot, 0, PROMPT, 2)])
    assert drawn == (truth(3),)
    (drawn,) = runner.step([block(slot, 3, (truth(3), truth(4), truth(5), 0, truth(7)))])
    assert drawn == (truth(4), truth(5), truth(6))
    assert runner.length(slot) == 8
    (drawn,) = runner.step([block(slot, 6, (truth(6),))])
    assert drawn == (truth(7),)
    assert runner.length(slot) == 7, "the next start drops what was rejected"


def test_the_prescribed_time_counts_rows_sessions_and_prompts() -> None:
    runner, loaded = make(), make(background=4)
    one, two = block(0, 0, (1,)), block(1, 0, (1, 2, 3, 4))
    chunk = block(2, 0, (1,) * 100, 100)
    assert runner.step_s([one]) == pytest.approx(0.004)
    assert runner.step_s([one, two]) == pytest.approx(0.008 + 0.002), "five rows of two sessions"
    assert runner.step_s([one, two, chunk]) == pytest.approx(0.010 + 0.1)
    assert runner.step_s([chunk]) == pytest.approx(0.004 + 0.1), "a prompt needs a pass over the weights too"
    assert loaded.step_s([one]) == pytest.approx(0.008 + 4 * 0.002)
    assert runner.cost_curve()[0] == (1, pytest.approx(0.004))
    assert loaded.cost_curve()[0] == (1, pytest.approx(0.016)), "the scheduler sees the load"


def test_a_step_is_never_early_and_a_queue_of_steps_takes_its_sum() -> None:
    runner = make()
    slot = runner.allocate()
    began = time.monotonic()
    runner.step([block(slot, 0, PROMPT, 2)])
    for position in range(3, 22):
        runner.step([block(slot, position, (truth(position),))])
    assert time.monotonic() - began >= 20 * 0.004
    assert runner.pace.late_s / runner.pace.pieces < 0.004, "late by a whole step on average"


class TestPace:
    def test_overhead_between_pieces_does_not_add_up(self) -> None:
        pace = Pace()
        began = time.monotonic()
        for _ in range(40):
            pace.work(0.004)
            spun = time.monotonic() + 0.0008
            while time.monotonic() < spun:
                pass
        seconds = time.monotonic() - began
        own = 40 * 0.0008
        assert seconds >= 40 * 0.004
        assert seconds - 40 * 0.004 < own / 2 + pace.late_s, "the overhead was added to the time"

    def test_an_idle_worker_begins_when_it_is_asked(self) -> None:
        pace = Pace()
        pace.work(0.001)
        time.sleep(0.02)
        began = time.monotonic()
        pace.work(0.005)
        assert time.monotonic() - began >= 0.005

    def test_interrupted_work_is_given_up(self) -> None:
        pace, asked = Pace(), iter([False, False, True])
        began = time.monotonic()
        assert not pace.work(30.0, lambda: next(asked))
        assert time.monotonic() - began < 10.0
        assert pace.pieces == 0


def test_blocks_that_break_the_contract_are_refused() -> None:
    runner = make(max_length=16)
    slot = runner.allocate()
    for bad, complaint in (
        ([], "at least one block"),
        ([block(slot, 0, (1,)), block(slot, 0, (1,))], "no slot twice"),
        ([block(slot + 1, 0, (1,))], "not allocated"),
        ([block(slot, 2, (1,))], "holds 0 positions"),
        ([block(slot, 0, (VOCAB,))], "outside the vocabulary"),
        ([block(slot, 0, (1,) * 17)], "beyond the model's 16"),
    ):
        with pytest.raises(InvalidRequest, match=complaint):
            runner.step(bad)
    assert runner.length(slot) == 0


def test_slots_run_out_and_come_back() -> None:
    runner = make(max_slots=2)
    slots = [runner.allocate(), runner.allocate()]
    with pytest.raises(Exhausted):
        runner.allocate()
    runner.release(slots[0])
    assert runner.length(runner.allocate()) == 0


def test_the_numerics_id_names_the_text() -> None:
    other = ReplayRunner(SyntheticText(999), PROFILE, vocab_size=999)
    assert make().numerics_id == "replay-synthetic-1000" != other.numerics_id


class TestNeverIdle:
    def test_time_lost_within_a_turn_is_made_up_for(self) -> None:
        runner = make_never_idle()
        slot = runner.allocate()
        began = time.monotonic()
        runner.step([block(slot, 0, PROMPT, 2)])
        runner.step([block(slot, 3, (truth(3),))])
        time.sleep(0.03)
        for position in range(4, 30):
            runner.step([block(slot, position, (truth(position),))])
        seconds, due = time.monotonic() - began, 28 * 0.004
        assert due <= seconds < due + 0.03 + runner.pace.late_s

    def test_time_between_turns_is_not(self) -> None:
        runner = make_never_idle()
        slot = runner.allocate()
        runner.step([block(slot, 0, PROMPT, 2)])
        time.sleep(0.05)
        began = time.monotonic()
        runner.step([block(slot, 0, PROMPT, 2)])
        assert time.monotonic() - began >= 0.004


def make_never_idle() -> ReplayRunner:
    return ReplayRunner(TEXT, PROFILE, vocab_size=VOCAB, never_idle=True)
