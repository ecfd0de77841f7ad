"""What a session tells its watcher, and that being watched changes nothing."""

from __future__ import annotations

import random

import pytest

from acespec.edge import watch
from acespec.edge.brain.controller import Controller, FixedController
from acespec.edge.brain.rate_controller import RateController
from acespec.edge.brain.tree_shape import TREE, TreeShape
from acespec.edge.brain.watched_controller import WatchedController
from acespec.edge.drafters.base import Candidate
from acespec.edge.session import EdgeSession
from acespec.edge.turn_request import TurnRequest
from acespec.proto import wire
from acespec.proto.messages import Opened
from tests.edge.fake_cloud import FakeCloud
from tests.edge.test_session_rules import commit_of
from tests.edge.world import PROMPT, VOCAB, World, make_drafter, make_truth


class Seen:
    def __init__(self) -> None:
        self.all: list[watch.Happening] = []

    def saw(self, happening: watch.Happening) -> None:
        self.all.append(happening)

    def sent(self) -> list[watch.Sent]:
        return [h for h in self.all if isinstance(h, watch.Sent)]

    def commits(self) -> list[watch.CommitSeen]:
        return [h for h in self.all if isinstance(h, watch.CommitSeen)]

    def drafts(self) -> list[watch.Drafted]:
        return [h for h in self.all if isinstance(h, watch.Drafted)]

    def decisions(self, question: str) -> list[watch.DecisionMade]:
        return [h for h in self.all if isinstance(h, watch.DecisionMade) and h.question == question]


def watched(controller: Controller, shape: TreeShape = TREE, rate: float = 20.0) -> tuple[EdgeSession, Seen]:
    seen = Seen()
    session = EdgeSession(fingerprint=bytes(16), vocab_size=VOCAB, controller=controller, shape=shape)
    session.watch(seen)
    session.start_turn(0.0, PROMPT, TurnRequest(max_tokens=500, seed=9))
    session.poll(0.0)
    session.receive(0.0, wire.encode_cloud(Opened(1, 0, "n", rate, 16, 64, exact=True)))
    return session, seen


def draft(session: EdgeSession, *levels: list[int], chance: float = 0.8) -> None:
    job = session.draft_job()
    assert job is not None
    answer = [
        [Candidate(t, chance if n == 0 else (1 - chance) / 2**n, "lm") for n, t in enumerate(level)] for level in levels
    ]
    session.drafted(job, answer, seconds=0.001, silent=False)


def test_a_turn_is_told_from_asking_to_the_first_commit() -> None:
    session, seen = watched(FixedController(2), TreeShape(2))
    draft(session, [7, 5], [8])
    session.poll(0.01)
    session.receive(0.1, commit_of(PROMPT, [7, 8, 3], ack=1, held_us=20_000))
    start, opened, served, job, drafted = [h for h in seen.all if not isinstance(h, watch.DecisionMade)][:5]
    assert start == watch.TurnStarted(len(PROMPT), len(PROMPT), 500, 9, 0.0)
    assert isinstance(opened, watch.Sent)
    assert (opened.what, opened.epoch, opened.frame) == ("open", 1, 0)
    assert isinstance(served, watch.Served)
    assert served.granted_rate == 20.0
    assert isinstance(job, watch.JobGiven)
    assert (job.position, job.k, job.survival) == (len(PROMPT), 2, 1.0)
    assert isinstance(drafted, watch.Drafted)
    assert (drafted.job, drafted.levels, drafted.fate) == (job.job, 2, "kept")
    assert [(g.token, g.rank, g.position - len(PROMPT)) for g in drafted.guesses] == [(7, 0, 0), (5, 1, 0), (8, 0, 1)]
    assert drafted.guesses[2].parent == drafted.guesses[0].key
    assert drafted.guesses[2].survival == pytest.approx(0.64)
    message, commit = seen.sent()[1], seen.commits()[0]
    assert (message.what, message.frame, message.why, message.first_node) == ("draft", 1, "worth", 0)
    assert set(message.keys) == {guess.key for guess in drafted.guesses}
    assert (commit.length, commit.tokens) == (len(PROMPT) + 3, (7, 8, 3))
    assert (commit.named, commit.guessed, commit.plain) == (0, 2, True)
    assert commit.rtt_ms == pytest.approx(70.0), "from .01 to .1 less 20 ms held"
    assert message.bytes < message.ip_bytes


def test_a_commit_that_names_a_node_is_no_plain_step() -> None:
    session, seen = watched(FixedController(3))
    draft(session, [7, 5], [8])
    session.poll(0.01)
    session.receive(0.1, commit_of([*PROMPT, 7, 8], [3], matched=1, ack=1))
    draft(session, [4, 9])
    session.receive(0.2, commit_of([*PROMPT, 7, 8, 3], [9], ack=1))
    first, second = seen.commits()
    assert (first.named, first.guessed, first.plain, first.surprises) == (2, 2, False, 0)
    assert (second.named, second.guessed, second.plain) == (0, 1, True)
    assert (second.surprises, second.covered, second.shipped) == (1, 1, 0), "the sibling had not left"
    assert second.rtt_ms is None


def test_what_went_wrong_with_an_answer_is_told() -> None:
    session, seen = watched(FixedController(4))
    job = session.draft_job()
    assert job is not None
    session.receive(0.1, commit_of(PROMPT, [1]))
    session.drafted(job, [[Candidate(7, 0.5, "lm")], [Candidate(8, 0.5, "lm")]], seconds=0.001, silent=False)
    draft(session, [3], [4])
    stale = session.draft_job()
    assert stale is not None
    session.receive(0.2, commit_of([*PROMPT, 1], [9]))
    session.drafted(stale, [[Candidate(7, 0.5, "lm")]], seconds=0.001, silent=False)
    wrong, kept, void = seen.drafts()
    assert (wrong.fate, wrong.guesses) == ("wrong", ())
    assert (kept.fate, len(kept.guesses)) == ("kept", 2)
    assert (void.fate, void.guesses) == ("void", ())


def test_guesses_that_are_not_kept_have_no_node_and_a_reason() -> None:
    session, seen = watched(RateController())
    draft(session, [7, 5], [8], chance=0.004)
    assert [guess.key >= 0 for guess in seen.drafts()[0].guesses] == [False]
    refused = seen.decisions("keep")
    assert [(d.go, d.depth) for d in refused] == [(False, 1)]
    assert "0.004" in refused[0].reason
    assert refused[0].value < 0


def test_a_message_says_why_it_left() -> None:
    session, seen = watched(RateController())
    draft(session, [7])
    session.poll(0.0)
    session.receive(0.1, commit_of(PROMPT, [7], ack=1, next_in_ms=1000))
    draft(session, [8], [9])
    assert session.poll(0.11) is None
    due = session.wake_at()
    assert due is not None
    assert session.poll(due)
    session.cancel()
    session.poll(due)
    assert [(m.what, m.why) for m in seen.sent()[1:]] == [("draft", "worth"), ("draft", "due"), ("cancel", "")]
    assert seen.sent()[2].first_node == 1


def test_an_owed_acknowledgement_and_an_asked_step_are_told_apart() -> None:
    session, seen = watched(FixedController(0))
    session.receive(0.1, commit_of(PROMPT, [7]))
    at = session.wake_at()
    assert at is not None
    assert session.poll(at)
    later = session.wake_at()
    assert later is not None
    assert session.poll(later)
    assert [(m.what, m.why, m.step) for m in seen.sent()[1:]] == [("ack", "ack", False), ("step", "request", True)]


def test_a_decision_is_told_once_between_commits_and_when_it_turns() -> None:
    seen = Seen()
    controller = WatchedController(FixedController(2), seen)
    for _ in range(5):
        controller.extend(2, 0.5)
        controller.extend(1, 0.8)
    assert [(d.depth, d.go, d.reason) for d in seen.decisions("extend")] == [
        (2, False, "all 2 drafted"),
        (1, True, "1 of 2 drafted"),
    ]
    controller.committed(0.0, 1, [])
    controller.extend(2, 0.5)
    assert len(seen.decisions("extend")) == 3


def test_polling_a_session_that_does_not_draft_writes_nothing_new() -> None:
    session, seen = watched(FixedController(0))
    for tick in range(50):
        session.poll(0.001 * tick)
        session.wants_draft()
    assert len(seen.decisions("extend")) <= 1


def test_a_turn_opened_anew_or_given_up_is_told() -> None:
    session, seen = watched(FixedController(2))
    before = len(seen.all)
    session.receive(0.1, commit_of([*PROMPT, 1], [7]))
    assert isinstance(seen.all[before], watch.ReopenedBecause)
    session.poll(0.1)
    assert seen.sent()[-1].epoch == 2
    session.abandon()
    session.abandon()
    assert seen.all.count(watch.Abandoned()) == 1


@pytest.mark.parametrize("seed", range(6))
def test_being_watched_changes_no_byte(seed: int) -> None:
    def run(seen: Seen | None) -> tuple[list[bytes], list[int]]:
        truth = make_truth(seed, 80)
        controller = RateController() if seed % 2 else FixedController(4)
        session = EdgeSession(
            fingerprint=bytes(16), vocab_size=VOCAB, controller=controller, session_id=bytes(16), shape=TREE
        )
        if seen is not None:
            session.watch(seen)
        cloud = FakeCloud(truth, VOCAB, random.Random(seed))
        world = World(session, cloud, make_drafter("oracle", truth), random.Random(seed))
        world.cuts = 2
        frames: list[bytes] = []
        poll = session.poll

        def noted(now: float) -> bytes | None:
            data = poll(now)
            frames.extend([] if data is None else [data])
            return data

        session.poll = noted  # type: ignore[method-assign] # the world calls it by this name
        world.run(PROMPT, TurnRequest(max_tokens=60, seed=1))
        return frames, session.ids

    seen = Seen()
    (frames, ids), (watched_frames, watched_ids) = run(None), run(seen)
    assert ids == watched_ids
    assert frames == watched_frames
    assert [m.bytes for m in seen.sent()] == [len(frame) for frame in watched_frames]
    assert [token for commit in seen.commits() for token in commit.tokens] == ids[len(PROMPT) :]
