"""Timing measured on runners whose times are known: a fake clock that only their steps move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from acespec.cloud.measure import measure_timing, quick_profile
from acespec.cloud.replay.runner import ReplayRunner
from acespec.cloud.runner import PAGE, Block, Drawn
from acespec.cloud.timing_fit import Measurement, Timed, not_negative
from acespec.proto.errors import UsageError
from acespec.proto.replay_profiles import find_verifier
from acespec.proto.replay_text import SyntheticText
from acespec.proto.timing_profile import TimingProfile
from acespec.sim.toy_target import ToyRunner

KNOWN = TimingProfile("known", ((1, 0.010), (8, 0.012), (64, 0.040)), 0.003, 2000.0, "made up", 0.00001)


class ClockedRunner(ToyRunner):
    """A toy (so it checks the KV that it is fed) whose steps take a profile's time on a clock of its own."""

    def __init__(self, profile: TimingProfile, *, noise: float = 0.0, **options: int) -> None:
        super().__init__(**options)
        self.now = 0.0
        self.steps_seen: list[tuple[int, int, int]] = []
        self._prescribed = ReplayRunner(SyntheticText(1000), profile, vocab_size=1000)
        self._noise = noise
        self._dice = np.random.default_rng(1)

    def step(self, blocks: Sequence[Block]) -> list[Drawn]:
        drawn = super().step(blocks)
        slower = 1 + self._noise * abs(float(self._dice.standard_normal()))
        self.now += self._prescribed.step_s(blocks) * slower
        if blocks[0].sample_from == 0:
            self.steps_seen.append((sum(len(b.tokens) for b in blocks), len(blocks), blocks[0].start))
        return drawn

    def clock(self) -> float:
        return self.now


def measured(runner: ClockedRunner, repeats: int = 3, **grid: Sequence[int]) -> Measurement:
    rows = grid.get("rows", (1, 2, 4, 8, 16, 64))
    return measure_timing(
        runner, rows, grid.get("sessions", (1, 4)), grid.get("contexts", (32, 300)), repeats, clock=runner.clock
    )


class TestQuick:
    def test_it_is_the_curve_of_one_session(self) -> None:
        runner = ClockedRunner(KNOWN)
        profile = quick_profile(runner, clock=runner.clock)
        assert [rows for rows, _ in profile.curve] == [1, 2, 4, 8, 16, 32, 64]
        for rows, seconds in profile.curve:
            assert seconds == pytest.approx(KNOWN.step_s(rows, 1, rows * 32))
        assert profile.prefill_rate == pytest.approx(2000, rel=0.05)

    def test_the_budget_ends_it(self) -> None:
        slow = TimingProfile("slow", ((1, 1.0), (64, 9.0)), 0.0, 100.0, "made up")
        runner = ClockedRunner(slow)
        assert [rows for rows, _ in quick_profile(runner, 1.5, runner.clock).curve] == [1]
        assert runner.now < 6.0

    def test_a_curve_never_falls(self) -> None:
        runner = ClockedRunner(KNOWN, noise=0.5)
        seconds = [s for _, s in quick_profile(runner, clock=runner.clock).curve]
        assert seconds == sorted(seconds)

    @pytest.mark.parametrize(("length", "pages", "most"), [(1, 1, 1), (2, 1, 1), (7, 1, 4), (512, 1, 32), (96, 9, 64)])
    def test_small_runners(self, length: int, pages: int, most: int) -> None:
        profile = quick_profile(ToyRunner(max_length=length, pages=pages))
        assert profile.curve[-1][0] == most
        assert profile.prefill_rate > 0


class TestGrid:
    def test_the_fit_recovers_the_constants(self) -> None:
        measurement = measured(ClockedRunner(KNOWN))
        profile = measurement.profile("again")
        assert profile.session_s == pytest.approx(KNOWN.session_s)
        assert profile.position_s == pytest.approx(KNOWN.position_s)
        assert profile.prefill_rate == pytest.approx(KNOWN.prefill_rate)
        for rows in (1, 3, 8, 40, 64):
            assert profile.step_s(rows, 4, 999) == pytest.approx(KNOWN.step_s(rows, 4, 999))
        assert measurement.fit_error(profile).worst < 1e-9
        assert not measurement.notes
        assert measurement.plain_rate == pytest.approx(1 / (0.010 + 32 * 0.00001))

    def test_noise_is_told_as_error(self) -> None:
        measurement = measured(ClockedRunner(KNOWN, noise=0.2), repeats=5)
        error = measurement.fit_error(measurement.profile("noisy"))
        assert 0.001 < error.median <= error.worst < 0.5
        assert any(p.low < p.median < p.high for p in measurement.points)

    def test_what_helps_is_not_taken_for_a_negative_cost(self) -> None:
        points = [Timed(r, 1, 64, s, s, s) for r, s in ((1, 1.0), (8, 2.0))]
        points += [Timed(8, 4, 64, 1.5, 1.5, 1.5), Timed(1, 1, 500, 0.9, 0.9, 0.9), Timed(8, 4, 500, 1.4, 1.4, 1.4)]
        profile = Measurement(tuple(points), 1, 128, 3.0).profile("odd")
        assert profile.session_s == profile.position_s == 0.0

    def test_rows_are_dealt_out_evenly_and_each_round_times_each_point_once(self) -> None:
        runner = ClockedRunner(KNOWN)
        measured(runner, repeats=2, rows=(1, 7), sessions=(3,), contexts=(10,))
        once = [(1, 1, 10), (7, 1, 10), (7, 3, 10)]
        assert runner.steps_seen == once + once[::-1], "one session is always measured; 1 row has no 3 sessions"

    def test_progress_ends_at_the_total(self) -> None:
        runner, told = ClockedRunner(KNOWN), list[tuple[int, int]]()
        measure_timing(runner, (1, 4), (1, 2), (8, 80), 2, lambda done, total: told.append((done, total)), runner.clock)
        assert told[-1][0] == told[-1][1]
        assert [done for done, _ in told] == list(range(1, told[-1][1] + 1))

    def test_what_does_not_fit_is_left_out_with_a_note(self) -> None:
        short = measured(ClockedRunner(KNOWN, max_length=100), contexts=(32, 60, 300))
        assert {p.context for p in short.points} == {32, 60}
        assert max(p.rows for p in short.points if p.context == 60 and p.sessions == 1) == 16
        assert any("context 300 left out" in note for note in short.notes)
        assert any("rows 64 partly left out at context 60" in note for note in short.notes)
        few = measured(ClockedRunner(KNOWN, pages=5), contexts=(32, 300))
        assert {(p.sessions, p.context) for p in few.points} == {(1, 32), (4, 32)}
        assert any("everything left out at context 300" in note for note in few.notes)

    def test_what_cannot_be_measured_is_refused(self) -> None:
        for length, pages, contexts in ((20, 9, (20,)), (512, 1, (PAGE,))):
            with pytest.raises(UsageError, match="does not fit"):
                measured(ClockedRunner(KNOWN, max_length=length, pages=pages), contexts=contexts)
        with pytest.raises(UsageError, match="counted from 1"):
            measured(ClockedRunner(KNOWN), rows=(0,))

    def test_a_context_shorter_than_a_chunk_gives_a_prefill_rate_too(self) -> None:
        assert measured(ClockedRunner(KNOWN), contexts=(50,)).profile("x").prefill_rate == pytest.approx(2000, rel=0.1)


def test_least_squares_that_hold_what_would_be_negative_at_0() -> None:
    assert not_negative([[1.0, 0.0], [0.0, 1.0]], [2.0, 3.0]) == pytest.approx([2.0, 3.0])
    assert not_negative([[1.0, 1.0], [0.0, 1.0]], [2.0, 1.0]) == pytest.approx([1.5, 0.0])
    assert not_negative([[0.0, 0.0], [1.0, 1.0]], [2.0, 4.0]) == pytest.approx([0.0, 3.0])
    assert not_negative([[1.0], [1.0]], [-1.0]) == [0.0, 0.0]


def test_a_measured_profile_is_saved_and_replayed(tmp_path: Path) -> None:
    profile = measured(ClockedRunner(KNOWN)).profile("mine")
    path = tmp_path / "mine.json"
    profile.save(path)
    assert find_verifier(str(path)) == profile
    replayed = ReplayRunner(SyntheticText(1000), find_verifier(str(path)), vocab_size=1000)
    assert replayed.timing() == profile
