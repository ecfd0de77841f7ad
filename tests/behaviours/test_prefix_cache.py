"""Prefix cache and acceptance: B19 to B24 of the list of behaviours."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import numpy as np
import pytest

from acespec.cloud.runner import PAGE, pages_for
from acespec.edge.drafters.base import TurnContext
from acespec.edge.drafters.ngram import NgramDrafter
from acespec.edge.drafters.torch_drafter import TorchDrafter
from acespec.proto.sampling import propose
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.timing_profile import TimingProfile
from tests.behaviours.engine import (
    GREEDY,
    HOT,
    MAIN_KINDS,
    Ask,
    Drafter,
    Engine,
    Nodes,
    Session,
    ask,
    chain,
    drafters,
    guesses,
    plain,
    reference,
    run_alone,
    target,
    verify_blocks,
)
from tests.cloud.torch_runners import VOCAB, block, table, text, tiny_folder

PREFIX = 2 * PAGE
COSTLY = TimingProfile("costly rows", ((1, 0.010), (251, 0.260)), 0.0, 20_000.0, "made up")
"""A row costs a tenth of a step."""


def on_a_warm_prefix(wanted: Ask, drafter: Drafter, principal: str = "p", spoil: bool = False) -> Session:
    """A turn whose first `PREFIX` tokens another turn of "p" has left in the cache."""
    engine = Engine()
    first = engine.open(Ask((*wanted.prompt[:PREFIX], 9, 9, 9), max_tokens=2))
    engine.step()
    engine.step()
    assert first.turn.hold is not None
    used = first.turn.hold.table[: PREFIX // PAGE]
    engine.run()
    if spoil:
        for page in used:
            target()._cache.kv[:, :, :, page * PAGE : (page + 1) * PAGE] = 0.0
    session = engine.open(wanted, drafter, principal=principal)
    engine.run()
    return session


@pytest.mark.parametrize("share", [1.0, 0.7, 0.3])
def test_b19_acceptance_is_the_same_on_a_warm_prefix_as_on_a_cold_one(share: float) -> None:
    """Drafted, accepted and plain counts on a restored prefix equal those on a cold one exactly."""
    wanted = ask(PREFIX + 30, 8, HOT, max_tokens=60)
    drafter = guesses(wanted, plain(wanted), 6, share)
    cold, _ = run_alone(wanted, drafter)
    warm = on_a_warm_prefix(wanted, drafter)
    stranger = on_a_warm_prefix(wanted, drafter, principal="another")
    assert [s.totals.cached_tokens for s in (cold, warm, stranger)] == [0, PREFIX, 0]
    assert cold.answer == warm.answer == plain(wanted)
    for session in (warm, stranger):
        assert session.totals.accepted_tokens == cold.totals.accepted_tokens > 0
        assert session.totals.draft_tokens == cold.totals.draft_tokens
        assert session.totals.verify_steps == cold.totals.verify_steps


def test_b19_a_prefix_that_is_not_restored_would_show() -> None:
    """With the restored pages blank, acceptance falls: the test above can fail."""
    wanted = ask(PREFIX + 30, 8, HOT, max_tokens=60)
    drafter = guesses(wanted, plain(wanted), 6)
    blank = on_a_warm_prefix(wanted, drafter, spoil=True).totals
    assert blank.accepted_tokens < 0.5 * run_alone(wanted, drafter)[0].totals.accepted_tokens


@pytest.mark.parametrize("kind", MAIN_KINDS)
def test_b20_prefix_hits_go_on_with_speculation(kind: str) -> None:
    """Turns that share a prefix hit it with drafts as without, and the hit rate is there to be read."""
    shared = text(PREFIX, 5)
    engine = Engine()
    for n in range(5):
        wanted = Ask((*shared, *text(20, 90 + n)), max_tokens=12)
        session = engine.open(wanted, drafters(wanted, plain(wanted), 5)[kind])
        engine.run()
        assert session.totals.cached_tokens == (PREFIX if n else 0)
        assert session.answer == plain(wanted)
    stats = engine.table.pages.stats
    assert (stats.asked, stats.hit) == (5 * (PREFIX + 20), 4 * PREFIX)
    assert stats.hit_rate == pytest.approx(4 * PREFIX / (5 * (PREFIX + 20)))


def test_b21_scheduled_drafts_count_and_not_proposed_ones() -> None:
    """Where D is cut, pages are reserved and drafts are counted for what a step verifies."""
    wanted = ask(PAGE - 12, 3, max_tokens=30)
    engine = Engine(max_rows=3)
    session = engine.open(wanted, guesses(wanted, plain(wanted), 16, 0.8))
    while session.finish is None:
        engine.draft()
        step = engine.plan()
        assert step is not None
        for part in step.parts:
            assert len(part.block.tokens) <= 3 or part.reason == "prefill"
            assert len(part.block.pages) <= pages_for(len(session.turn.tokens) + 2)
        engine.land(step)
    scheduled = sum(len(b.tokens) - 1 for b in verify_blocks(engine, session))
    assert session.totals.draft_tokens == scheduled < session.totals.received_nodes
    assert session.answer == plain(wanted)


def alarms(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "acceptance" in record.getMessage()]


def test_b22_a_session_whose_drafts_are_all_wrong_is_cut_to_probes() -> None:
    """At acceptance 0 and dear rows a session's draft rows fall to one probe in sixteen steps, and recover with it."""
    wanted = ask(10, 3, max_tokens=260)
    engine = Engine(timing=COSTLY)
    session = engine.open(wanted, guesses(wanted, plain(wanted), 8, 0.0))
    while len(session.tokens) < 140:
        engine.step()
    late = [len(b.tokens) for b in verify_blocks(engine, session)][-64:]
    assert 4 <= sum(size > 1 for size in late) <= 6
    assert max(late) == 2
    session.drafter = guesses(wanted, plain(wanted), 8)
    engine.run()
    assert max(len(b.tokens) for b in verify_blocks(engine, session)[-6:]) > 4
    assert session.answer == plain(wanted)


def test_b22_a_collapse_of_acceptance_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Acceptance that falls far below its history is logged once, with the session and both figures; the next
    collapse is logged again, and a session that goes on as ever never is."""
    caplog.set_level(logging.WARNING, "acespec.cloud")
    wanted = ask(6, 4, max_tokens=500)
    engine = Engine()
    session = engine.open(wanted, guesses(wanted, plain(wanted), 1, 0.6))
    good, bad = session.drafter, guesses(wanted, plain(wanted), 1, 0.0)

    def run(until: int) -> int:
        while len(session.tokens) < until:
            engine.step()
        return len(alarms(caplog))

    assert run(150) == 0
    session.drafter = bad
    assert run(210) == 1
    assert f"session {session.key[1].hex()[:8]} of p" in alarms(caplog)[0]
    figures = re.search(r"to (\d+) % from (\d+) %", alarms(caplog)[0])
    assert figures is not None
    assert 0 <= int(figures[1]) < 25 < 50 < int(figures[2]) < 70
    session.drafter = good
    assert run(330) == 1
    session.drafter = bad
    assert run(400) == 2


def test_b22_drafts_that_were_never_right_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """A session of acceptance 0 from its start on raises the alarm too, and drafts that are seldom right do not."""
    caplog.set_level(logging.WARNING, "acespec.cloud")
    wanted = ask(10, 3, max_tokens=120)
    run_alone(wanted, guesses(wanted, plain(wanted), 4, 0.3))
    assert alarms(caplog) == []
    run_alone(wanted, guesses(wanted, plain(wanted), 4, 0.0))
    assert len(alarms(caplog)) == 1
    assert "to 0 %" in alarms(caplog)[0]


@pytest.mark.parametrize("kind", ["torch", "ngram"])
def test_b23_rounds_without_drafts_reach_the_drafter_too(kind: str) -> None:
    """After rounds of D = 0 a drafter proposes what a fresh one would that has read all that was committed."""
    wanted = Ask(tuple(text(9, 2)) * 3, max_tokens=40)
    turn = TurnContext(GREEDY, 0, len(wanted.prompt), VOCAB)

    def fresh() -> NgramDrafter | TorchDrafter:
        made = TorchDrafter(tiny_folder()) if kind == "torch" else NgramDrafter()
        made.begin(turn)
        return made

    drafter, compared = fresh(), []
    engine = Engine()
    session = engine.open(wanted)
    told = len(wanted.prompt)
    while session.finish is None:
        engine.step()
        drafter.commit(session.turn.tokens[told:], told)
        told = len(session.turn.tokens)
        if len(session.tokens) % 9 == 0 and session.finish is None:
            other = fresh()
            other.commit(session.tokens, len(wanted.prompt))
            compared.append(drafter.propose(session.turn.tokens, 3))
            assert [c.token for c in compared[-1]] == [c.token for c in other.propose(session.turn.tokens, 3)]
    assert len(compared) == 4
    assert any(compared)


def test_b23_plain_steps_carry_pending_drafts_along() -> None:
    """A draft whose base lies behind tokens that were committed plainly meanwhile is walked through them, not lost."""
    wanted = ask(8, 5, max_tokens=20)
    answer = plain(wanted).tokens
    engine = Engine()
    session = engine.open(wanted)
    base = len(wanted.prompt)
    for _ in range(4):
        engine.step()
    engine.offer(session, chain(answer[:12]), base)
    engine.step()
    assert len(session.tokens) == 13, "eight drafts were left, and the bonus token"
    engine.run()
    assert session.answer == plain(wanted)


def test_b24_drafts_are_sampled_with_the_targets_noise() -> None:
    """At T > 0 a drafter of nearly the target's mind is accepted far more often if it samples with the shared noise
    than if its greedy guesses meet samples; the text is the same."""
    wanted = ask(10, 6, SamplingParams(temperature=1.2), max_tokens=60)
    own = reference()

    def drafter(params: SamplingParams) -> Drafter:
        def guess(tokens: Sequence[int]) -> Nodes:
            path = list(tokens)
            for _ in range(2):
                (rows,) = own.logits([block(table(0), 0, path, len(path) - 1)])
                noise = np.random.default_rng(len(path)).standard_normal(rows.shape[1]).astype(np.float32)
                row = rows[-1] + np.float32(0.3) * noise
                path.append(propose(row, params, wanted.seed, len(path), 1, vocab_size=VOCAB)[0][0])
            return chain(path[len(tokens) :])

        return guess

    shared, greedy = (run_alone(wanted, drafter(params))[0] for params in (wanted.params, GREEDY))
    assert shared.answer == greedy.answer == plain(wanted)
    rates = [s.totals.accepted_tokens / s.totals.draft_tokens for s in (shared, greedy)]
    assert rates[0] > 0.6
    assert rates[1] < 0.5 * rates[0]
