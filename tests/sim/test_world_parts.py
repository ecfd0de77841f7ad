"""The small parts of the world: reader, recorder, quantiles, the batching verifier."""

from __future__ import annotations

import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.proto.replay_text import SyntheticText
from acespec.proto.timing_profile import TimingProfile
from acespec.sim.agenda import Agenda
from acespec.sim.digest import EventDigest, Happening
from acespec.sim.world.known_text import KnownText
from acespec.sim.world.reader import BUFFER_S, Reader
from acespec.sim.world.recorder import Recorder
from acespec.sim.world.result import Spread, Traffic
from acespec.sim.world.tally import edge_result
from acespec.sim.world.verifier_queue import VerifierQueue

TIMES = st.lists(st.floats(0, 100, allow_nan=False), max_size=60)


@given(TIMES, st.integers(0, 60))
def test_quantiles_count_zeros_that_nobody_wrote_down(values: list[float], zeros: int) -> None:
    spread = Spread.of(values, zeros)
    whole = sorted([*values, *[0.0] * zeros])
    if not whole:
        assert spread == Spread()
        return
    assert spread.mean == pytest.approx(math.fsum(whole) / len(whole))
    for share, got in ((0.05, spread.p5), (0.5, spread.p50), (0.95, spread.p95), (0.99, spread.p99)):
        assert got == whole[min(len(whole) - 1, int(share * len(whole)))]


def test_a_reader_who_waits_goes_on_from_there() -> None:
    """A stall makes one token late, not all that follow."""
    reader = Reader(10.0)
    reader.arrived(0.0, 1)  # read at 0.5
    reader.arrived(0.6, 1)  # wanted at 0.6
    reader.arrived(1.7, 3)  # wanted at 0.7: late; then at 1.8 and 1.9
    assert (reader.wanted, reader.late) == (5, 1)
    reader.begin_turn()
    reader.arrived(9.0, 1)
    assert (reader.wanted, reader.late) == (6, 1)


@given(st.floats(0.1, 50), st.integers(1, 80))
def test_who_keeps_the_rate_is_never_late(rate: float, tokens: int) -> None:
    reader = Reader(rate)
    for number in range(tokens):
        reader.arrived(number / rate + 0.9 * BUFFER_S * (number % 3 == 1), 1)
    assert reader.late == 0


def test_at_no_rate_nobody_waits() -> None:
    reader = Reader(0.0)
    reader.arrived(0.0, 1)
    reader.arrived(1e6, 5)
    assert (reader.wanted, reader.late) == (6, 0)


def test_a_record_holds_first_tokens_gaps_and_speed() -> None:
    agenda = Agenda()
    recorder = Recorder(agenda, EventDigest(), 1, 20.0)
    script = [(1.0, partial(recorder.asked, 0))]
    script += [(at, partial(recorder.committed, 0, n)) for at, n in ((1.5, 1), (2.0, 3), (2.5, 1))]
    script += [(2.5, partial(recorder.ended, 0)), (4.0, partial(recorder.asked, 0))]
    script += [(4.25, partial(recorder.committed, 0, 2)), (5.25, partial(recorder.committed, 0, 2))]
    for at, action in script:
        agenda.at(at, action)
    agenda.run(6.0)
    result = edge_result(0, recorder.edges[0], Traffic())
    assert result.tokens == 9
    assert result.turns == 1
    assert result.first_token_s == pytest.approx((0.5 + 0.25) / 2)
    assert result.tokens_per_s == pytest.approx((4 + 2) / (1.0 + 1.0))
    assert result.commit_gap.mean == pytest.approx((0.5 + 0.5 + 1.0) / 3)
    # Of nine tokens two are a turn's first; of the other seven three came alone or first of a burst.
    assert result.gap.mean == pytest.approx((0.5 + 0.5 + 1.0) / 7)
    assert result.gap.p95 == 1.0


def test_a_digest_knows_order_time_kind_edge_and_figures() -> None:
    base = [(1, Happening.COMMIT, 0, 2, 3), (1, Happening.STEP, -1, 2, 3)]
    others = [
        base[::-1],
        base[:1],
        [(2, Happening.COMMIT, 0, 2, 3), base[1]],
        [(1, Happening.DRAFT, 0, 2, 3), base[1]],
        [(1, Happening.COMMIT, 1, 2, 3), base[1]],
        [(1, Happening.COMMIT, 0, 3, 2), base[1]],
    ]
    assert _digest(base) == _digest(base)
    assert len({_digest(each) for each in (base, *others)}) == 7


def _digest(events: list[tuple[int, Happening, int, int, int]]) -> str:
    digest = EventDigest()
    for event in events:
        digest.add(*event)
    return digest.hex()


def test_a_long_digest_does_not_depend_on_when_it_is_read() -> None:
    once, often = EventDigest(), EventDigest()
    for time in range(5000):
        once.add(time, Happening.STEP, -1, time)
        often.add(time, Happening.STEP, -1, time)
        if time % 700 == 0:
            often.hex()
    assert once.hex() == often.hex()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 300)), max_size=40))
def test_a_known_text_says_what_the_text_says(asked: list[tuple[int, int]]) -> None:
    text = SyntheticText(1000)
    known = KnownText(text)
    for seed, position in asked:
        assert known.token(seed, position, 20) == text.token(seed, position, 20)
        if position % 7 == 0:
            known.forget(seed, 20)


# -- the batching verifier -------------------------------------------------------------------------------------------

PROFILE = TimingProfile("made up", ((1, 0.02), (11, 0.03)), 0.001, 1000.0, "made up", position_s=0.0)


class Queue:
    """A verifier whose answers are noted."""

    def __init__(self, max_rows: int = 8) -> None:
        self.agenda = Agenda()
        self.recorder = Recorder(self.agenda, EventDigest(), 1, 0.0)
        self.queue = VerifierQueue(self.agenda, PROFILE, max_rows, self.recorder)
        self.done: list[tuple[str, float]] = []

    def note(self, name: str) -> None:
        """Something is done, now."""
        self.done.append((name, round(self.agenda.now, 6)))

    def verify(self, name: str, rows: int, **more: float) -> None:
        """Ask for a block."""
        self.queue.verify(rows, 0, partial(self.note, name), **more)


def test_what_waits_shares_a_step() -> None:
    world = Queue()
    world.verify("a", 1)
    world.verify("b", 1)
    world.agenda.run(1.0)
    assert world.done == [("a", 0.022), ("b", 0.022)]
    assert (world.recorder.steps, world.recorder.step_sessions, world.recorder.step_rows) == (1, 2, 2)
    assert world.recorder.busy_ns == 22_000_000


def test_rows_beyond_the_bound_wait_for_the_next_step() -> None:
    world = Queue(max_rows=4)
    for name, rows in (("a", 3), ("b", 3), ("c", 1)):
        world.verify(name, rows)
    world.agenda.run(1.0)
    assert world.done == [("a", 0.022), ("b", 0.046), ("c", 0.046)]


def test_what_comes_during_a_step_waits_for_its_end() -> None:
    world = Queue()
    world.verify("a", 1)
    world.agenda.at(0.005, partial(world.verify, "b", 1))
    world.agenda.run(1.0)
    assert world.done == [("a", 0.02), ("b", 0.04)]


def test_a_prompt_is_read_in_chunks_that_ride_along() -> None:
    world = Queue()
    world.queue.prefill(300, partial(world.note, "prompt"))
    world.agenda.run(1.0)
    ((_, ended),) = world.done
    assert ended == pytest.approx(3 * PROFILE.step_s(0, 0) + 0.3)
    crowded = Queue()
    crowded.queue.prefill(128, partial(crowded.note, "prompt"))
    crowded.verify("a", 1)
    crowded.agenda.run(1.0)
    assert crowded.done == [("a", 0.148), ("prompt", 0.148)]


def test_drafting_in_the_cloud_holds_the_step_up_by_the_longest() -> None:
    world = Queue()
    world.verify("a", 2, draft_s=0.01)
    world.verify("b", 2, draft_s=0.03)
    world.agenda.run(1.0)
    assert world.done == [("a", 0.054), ("b", 0.054)]
