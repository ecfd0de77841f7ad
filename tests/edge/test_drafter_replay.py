from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.edge.drafters.base import TurnContext
from acespec.edge.drafters.replay import HostileDrafter, ReplayDrafter, UselessDrafter
from acespec.edge.drafters.replay_accuracy import ChangingAccuracy, DepthAccuracy, RecordedAccuracy, read_accuracy
from acespec.edge.drafters.replay_factory import ReplayDrafting, make_replay_drafter
from acespec.proto.errors import UsageError
from acespec.proto.replay_profiles import find_drafter
from acespec.proto.replay_text import Recording, SyntheticText
from acespec.proto.sampling_params import SamplingParams

VOCAB = 5000
TEXT = SyntheticText(VOCAB)
PROMPT = [1, 2, 3, 4]
SEED = 11


def truth(position: int) -> int:
    return TEXT.token(SEED, position, len(PROMPT))


def true_path(length: int) -> list[int]:
    return PROMPT + [truth(p) for p in range(len(PROMPT), length)]


def begun(drafter: ReplayDrafter) -> ReplayDrafter:
    drafter.begin(TurnContext(SamplingParams(), SEED, len(PROMPT), VOCAB))
    return drafter


def make(*chances: float) -> ReplayDrafter:
    return begun(ReplayDrafter(TEXT, DepthAccuracy(chances), 0.0))


def first(drafter: ReplayDrafter, path: list[int]) -> int:
    return drafter.propose(path)[0].token


def test_the_share_of_right_guesses_is_the_prescribed_one() -> None:
    drafter = make(0.8)
    right = 0
    for position in range(4, 4004):
        drafter.commit([truth(position - 1)], position - 1)
        right += first(drafter, true_path(position) if position < 60 else [0] * (position - 1) + [0]) == truth(position)
    assert right == pytest.approx(3200, abs=110)


def test_each_depth_has_its_own_chance() -> None:
    drafter = make(0.9, 0.5, 0.1)
    hits = [0, 0, 0, 0]
    for start in range(4, 1004):
        drafter._committed = start
        path = [0] * start
        for depth in range(4):
            hits[depth] += first(drafter, path) == truth(len(path))
            path.append(truth(len(path)))
    assert hits == [pytest.approx(n, abs=50) for n in (900, 500, 100, 100)]
    assert [make(0.9, 0.5).propose(true_path(4 + d))[0].probability for d in range(3)] == [0.9, 0.5, 0.5]


@pytest.mark.parametrize(("k", "share"), [(1, 0.8), (2, 0.9), (3, 0.94), (4, 0.955), (8, 0.9816)])
def test_further_guesses_catch_their_share_of_the_misses(k: int, share: float) -> None:
    drafter = make(0.8)
    caught = first_right = 0
    for start in range(4, 4004):
        drafter._committed = start
        guesses = drafter.propose([0] * start, k)
        tokens = [guess.token for guess in guesses]
        assert len(set(tokens)) == k, "guesses at one place differ"
        assert tokens == sorted(tokens, key=lambda t: -guesses[tokens.index(t)].probability), "the best first"
        assert sum(guess.probability for guess in guesses) == pytest.approx(share, abs=1e-4)
        caught += truth(start) in tokens
        first_right += tokens[0] == truth(start)
    assert caught == pytest.approx(4000 * share, abs=80)
    assert first_right == pytest.approx(3200, abs=80), "the first guess does not depend on how many there are"


def test_the_right_token_may_be_followed_through_a_sibling() -> None:
    drafter = make(0.5)
    start = next(p for p in range(4, 400) if drafter._accuracy.rank(SEED, p, 4, 1, 4) == 1)
    drafter._committed = start
    first_guess, second = drafter.propose(true_path(start), 2)
    assert second.token == truth(start) != first_guess.token
    behind = [drafter.propose([*true_path(start), token], 4) for token in (first_guess.token, second.token)]
    assert all(guess.token != truth(start + 1) for guess in behind[0]), "behind a wrong token all are wrong"
    assert any(guess.token == truth(start + 1) for guess in behind[1]) == (
        drafter._accuracy.rank(SEED, start + 1, 4, 2, 4) < 4
    )


def test_behind_a_wrong_token_everything_is_wrong_until_a_commit() -> None:
    drafter = make(1.0)
    path = [*true_path(8), (truth(8) + 1) % VOCAB]
    for _ in range(50):
        path += [first(drafter, path)]
        assert path[-1] != truth(len(path) - 1)
    drafter.commit(true_path(9)[4:], 4)
    assert first(drafter, true_path(9)) == truth(9)


@given(st.integers(4, 200), st.integers(0, 6))
def test_a_guess_is_judged_the_same_whenever_it_is_asked(position: int, behind: int) -> None:
    """With one chance for all depths, a position that was wrong once is wrong on every true path."""
    drafter, again = make(0.5), make(0.5)
    again._committed = max(4, position - behind)
    path = true_path(position)
    assert first(drafter, path) == first(again, path)


def test_proposals_take_the_prescribed_time_and_can_be_interrupted() -> None:
    drafter = begun(ReplayDrafter(TEXT, DepthAccuracy((1.0,)), 0.004))
    began = time.monotonic()
    for length in range(4, 14):
        drafter.propose(true_path(length))
    assert time.monotonic() - began >= 10 * 0.004
    slow = begun(ReplayDrafter(TEXT, DepthAccuracy((1.0,)), 60.0))
    slow.should_stop = lambda: True
    assert slow.propose(PROMPT) == []
    slow.should_stop = lambda: False


def test_the_useless_one_is_never_right_and_sure() -> None:
    drafter = begun(UselessDrafter(TEXT, DepthAccuracy((1.0,)), 0.0))
    for position in range(4, 1000):
        (candidate,) = drafter.propose([0] * position)
        assert candidate.token != truth(position)
        assert 0 <= candidate.token < VOCAB
        assert candidate.probability == 0.9


def test_the_hostile_one_breaks_every_bound_but_the_vocabulary() -> None:
    drafter = begun(HostileDrafter(TEXT, DepthAccuracy((1.0,)), 0.0))
    for position in range(4, 200):
        candidates = drafter.propose([0] * position, k=1)
        assert len(candidates) > 1
        assert all(c.token != truth(position) and c.probability > 1 for c in candidates)


class TestRecorded:
    recordings = (Recording((7, 8, 9), (0, 2, 0), (0.9, 0.3, 0.8)), Recording((5,), (1,)))

    def test_ranks_decide_and_probabilities_are_claimed(self) -> None:
        accuracy = RecordedAccuracy(self.recordings)
        assert [accuracy.right(2, p, 10, 1) for p in (10, 11, 12, 13)] == [True, False, True, True]
        assert [accuracy.claim(2, p, 10, 1) for p in (10, 11, 12)] == [0.9, 0.3, 0.8]
        assert not accuracy.right(3, 10, 10, 1)
        assert [accuracy.rank(2, p, 10, 1, most) for p, most in ((10, 4), (11, 4), (11, 2), (13, 4))] == [0, 2, 2, 0]
        assert accuracy.claim(3, 10, 10, 1) == 0.0

    def test_a_trace_file_gives_ids_and_ranks(self, tmp_path: Path) -> None:
        trace = tmp_path / "trace.jsonl"
        trace.write_text('{"ids": [300, 301, 302], "ranks": [0, 2, 0]}\n', encoding="utf-8")
        drafter = make_replay_drafter(ReplayDrafting(profile="instant", acceptance=str(trace)), VOCAB)
        begun(drafter)
        assert first(drafter, PROMPT) == 300
        assert first(drafter, [*PROMPT, 300]) != 301
        assert first(drafter, [*PROMPT, 300, 301]) == 302

    def test_a_trace_without_ranks_is_refused(self) -> None:
        with pytest.raises(UsageError, match="'ranks'"):
            RecordedAccuracy((Recording((1, 2)),))


def test_acceptance_is_numbers_or_a_file(tmp_path: Path) -> None:
    assert read_accuracy("0.8") == (DepthAccuracy((0.8,)), None)
    assert read_accuracy(".8,.75, 0.5") == (DepthAccuracy((0.8, 0.75, 0.5)), None)
    for bad in ("1.5", "-0.1", "nan", "0.5,2"):
        with pytest.raises(UsageError, match="from 0 to 1"):
            read_accuracy(bad)
    with pytest.raises(UsageError, match="neither numbers"):
        read_accuracy(str(tmp_path / "missing"))


def test_drafters_are_made_by_name() -> None:
    for kind in ("replay", "useless", "hostile"):
        drafter = make_replay_drafter(ReplayDrafting(kind), VOCAB)
        assert drafter.name == kind
        assert drafter._token_s == find_drafter("m3-0.6b-4bit").token_s
    with pytest.raises(UsageError, match="replay, useless, hostile"):
        make_replay_drafter(ReplayDrafting("clever"), VOCAB)


class TestChangingAccuracy:
    accuracy = ChangingAccuracy((0, 300), (0.9, 0.5))

    def test_chances_hold_from_their_positions_on(self) -> None:
        before = DepthAccuracy((0.9,))
        behind = DepthAccuracy((0.5,))
        for answered in range(600):
            expected = before if answered < 300 else behind
            seen = (5, 40 + answered, 40, 3)
            assert self.accuracy.right(*seen) == expected.right(*seen)
            assert self.accuracy.rank(*seen, 4) == expected.rank(*seen, 4)

    def test_the_drafter_does_not_notice(self) -> None:
        assert {self.accuracy.claim(5, 40 + answered, 40, 1) for answered in (0, 299, 300, 599)} == {0.9}

    def test_it_is_written_with_positions(self) -> None:
        assert read_accuracy("0.9@0,0.5@300") == (self.accuracy, None)
        for bad in ("0.9@5", "0.9@0,0.5@0", "0.9@0,0.5@300,0.7@200"):
            with pytest.raises(UsageError, match="positions ascend"):
                read_accuracy(bad)
        with pytest.raises(UsageError, match="from 0 to 1"):
            read_accuracy("0.9@0,1.5@300")
        for bad in ("0.9@0,0.5", "0.9@x", "@"):
            with pytest.raises(UsageError, match="neither numbers"):
                read_accuracy(bad)

    def test_each_chance_has_its_position(self) -> None:
        with pytest.raises(UsageError, match="one each"):
            ChangingAccuracy((0, 10), (0.5,))
