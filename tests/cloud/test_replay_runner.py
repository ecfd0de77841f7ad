from __future__ import annotations

import time

import pytest

from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.replay.runner import ReplayRunner
from acespec.cloud.runner import Block, pages_for
from acespec.proto.errors import InvalidRequest
from acespec.proto.replay_pace import Pace
from acespec.proto.replay_text import SyntheticText
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.timing_profile import TimingProfile

VOCAB = 1000
TEXT = SyntheticText(VOCAB)
PROFILE = TimingProfile(
    "test", ((1, 0.004), (9, 0.012)), session_s=0.002, prefill_rate=1000.0, source="made up", position_s=0.00001
)
SEED = 7
PROMPT = (1, 2, 3)
RULE = DrawRule(SamplingParams(), SEED, len(PROMPT))


def make(**options: int) -> ReplayRunner:
    return ReplayRunner(TEXT, PROFILE, vocab_size=VOCAB, **options)


def block(page: int, start: int, tokens: tuple[int, ...], sample_from: int = 0, parents: tuple[int, ...] = ()) -> Block:
    pages = tuple(range(page, page + pages_for(start + len(tokens))))
    return Block(pages, start, tokens, (0,) * start, sample_from, RULE, parents)


def truth(position: int) -> int:
    return TEXT.token(SEED, position, len(PROMPT))


def test_drafts_are_taken_as_long_as_they_match() -> None:
    runner = make()
    (drawn,) = runner.step([block(0, 0, PROMPT, 2)])
    assert drawn.tokens == (truth(3),)
    assert drawn.rows == (2,)
    (drawn,) = runner.step([block(0, 3, (truth(3), truth(4), truth(5), 0, truth(7)))])
    assert drawn.tokens == (truth(4), truth(5), truth(6))
    (drawn,) = runner.step([block(0, 6, (truth(6),))])
    assert drawn.tokens == (truth(7),)


def test_a_tree_is_walked_by_depth() -> None:
    """Rows: 0 - (1 wrong), 0 - 2 - (3 wrong), 2 - 4."""
    tree = (truth(3), 0, truth(4), 0, truth(5))
    (drawn,) = make().step([block(0, 3, tree, parents=(-1, 0, 0, 2, 2))])
    assert drawn.rows == (0, 2, 4)
    assert drawn.tokens == (truth(4), truth(5), truth(6))


def test_a_known_text_is_certain() -> None:
    for top, expected in ((0, ()), (5, ((truth(3), 0.0),))):
        rule = DrawRule(SamplingParams(), SEED, len(PROMPT), top_logprobs=top)
        (drawn,) = make().step([Block((0,), 0, PROMPT, (), 2, rule)])
        assert [(item.logprob, item.top) for item in drawn.logprobs] == [(0.0, expected)]


def test_the_prescribed_time_counts_rows_sessions_positions_and_prompts() -> None:
    runner, loaded = make(), make(background=4)
    one, two, far = block(0, 0, (1,)), block(1, 0, (1, 2, 3, 4)), block(9, 300, (1, 1))
    chunk = block(2, 0, (1,) * 100, 100)
    assert runner.step_s([one]) == pytest.approx(0.004)
    assert runner.step_s([one, two]) == pytest.approx(0.008 + 0.002), "five rows of two sessions"
    assert runner.step_s([one, two, chunk]) == pytest.approx(0.010 + 0.1)
    assert runner.step_s([chunk]) == pytest.approx(0.004 + 0.1), "a prompt needs a pass over the weights too"
    assert runner.step_s([far]) == pytest.approx(0.005 + 2 * 0.003)
    assert loaded.step_s([one]) == pytest.approx(0.008 + 4 * 0.002)


@pytest.mark.parametrize("background", [0, 1, 4, 30])
def test_the_scheduler_sees_the_load(background: int) -> None:
    timing = make(background=background).timing()
    for rows, sessions in ((1, 1), (3, 1), (5, 5), (8, 2), (40, 7)):
        expected = PROFILE.step_s(rows + background, sessions + background, 100)
        assert timing.step_s(rows, sessions, 100) == pytest.approx(expected)
    assert timing.prefill_rate == PROFILE.prefill_rate


def test_a_step_is_never_early_and_a_queue_of_steps_takes_its_sum() -> None:
    runner = make()
    began = time.monotonic()
    runner.step([block(0, 0, PROMPT, 2)])
    for position in range(3, 22):
        runner.step([block(0, position, (truth(position),))])
    assert time.monotonic() - began >= 20 * 0.004
    assert runner.pace.late_s / runner.pace.pieces < 0.004, "late by a whole step on average"


class TestPace:
    def test_overhead_between_pieces_does_not_add_up(self) -> None:
        own = 40 * 0.0008
        late: list[float] = []
        for _ in range(5):  # Others on the machine may take it away from us; it takes one run without them.
            pace = Pace()
            began = time.monotonic()
            for _ in range(40):
                pace.work(0.004)
                spun = time.monotonic() + 0.0008
                while time.monotonic() < spun:
                    pass
            seconds = time.monotonic() - began
            assert seconds >= 40 * 0.004
            late.append(seconds - 40 * 0.004 - pace.late_s)
            if late[-1] < own / 2:
                return
        raise AssertionError(f"the overhead was added to the time: {late}")

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
    runner = make(max_length=16, pages=3)
    for bad, complaint in (
        ([], "at least one block"),
        ([block(0, 0, (1,)), block(0, 0, (1,))], "share a page"),
        ([block(3, 0, (1,))], "outside the 3"),
        ([block(0, 0, (VOCAB,))], "outside the vocabulary"),
        ([block(0, 0, (1,) * 17)], "beyond the model's 16"),
    ):
        with pytest.raises(InvalidRequest, match=complaint):
            runner.step(bad)
    assert runner.pace.pieces == 0


def test_the_numerics_id_names_the_text() -> None:
    other = ReplayRunner(SyntheticText(999), PROFILE, vocab_size=999)
    assert make().numerics_id == "replay-synthetic-1000" != other.numerics_id


class TestNeverIdle:
    def test_time_lost_within_a_turn_is_made_up_for(self) -> None:
        runner = make_never_idle()
        began = time.monotonic()
        runner.step([block(0, 0, PROMPT, 2)])
        runner.step([block(0, 3, (truth(3),))])
        time.sleep(0.03)
        for position in range(4, 30):
            runner.step([block(0, position, (truth(position),))])
        seconds, due = time.monotonic() - began, 28 * 0.004
        assert due <= seconds < due + 0.03 + runner.pace.late_s

    def test_time_between_turns_is_not(self) -> None:
        runner = make_never_idle()
        runner.step([block(0, 0, PROMPT, 2)])
        time.sleep(0.05)
        began = time.monotonic()
        runner.step([block(0, 0, PROMPT, 2)])
        assert time.monotonic() - began >= 0.004


def make_never_idle() -> ReplayRunner:
    return ReplayRunner(TEXT, PROFILE, vocab_size=VOCAB, never_idle=True)
