"""Stopping and budget: B25 to B27 of the list of behaviours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acespec.edge.report import as_json
from acespec.edge.turn_request import TurnRequest
from acespec.proto.messages import FinishReason
from tests.behaviours.engine import (
    HOT,
    KINDS,
    MAIN_KINDS,
    Ask,
    Engine,
    Session,
    adversarial,
    ask,
    drafters,
    guesses,
    plain,
    run_alone,
    target,
    tokenizer,
)
from tests.drafters import OracleDrafter
from tests.e2e import local


def ends_after(wanted: Ask, least: int) -> Ask:
    """The request with a stop id that plain decoding says for the first time behind `least` tokens."""
    said = plain(wanted).tokens
    at = next(n for n in range(least, len(said)) if said[n] not in said[:n])
    return replace(wanted, stop_ids=(said[at],))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("least", [0, 7])
def test_b25_nothing_follows_an_end_inside_an_accepted_block(kind: str, least: int) -> None:
    """The output ends at an EOS in the middle of right drafts: nothing behind it is emitted, counted or cached."""
    unstopped = ask(20, 9, HOT, max_tokens=30)
    wanted = ends_after(unstopped, least)
    said = plain(unstopped)
    engine = Engine()
    session = engine.open(wanted, drafters(wanted, said, 16)[kind])
    engine.run()
    assert session.answer == plain(wanted)
    assert session.finish is FinishReason.STOP_TOKEN
    assert session.turn.tokens == [*wanted.prompt, *session.tokens]
    assert session.totals.accepted_tokens <= len(session.tokens) < 30
    # What follows: a turn over the text as it would have gone on finds no more than what was said.
    later = engine.open(Ask((*wanted.prompt, *said.tokens), max_tokens=2))
    engine.run()
    assert later.totals.cached_tokens == len(wanted.prompt) + len(session.tokens) - 1
    assert later.answer == plain(later.wanted)


@pytest.mark.parametrize("kind", MAIN_KINDS)
def test_b25_a_stop_string_inside_an_accepted_block_ends_the_text_there(kind: str) -> None:
    """A stop string that drafts complete ends the answer at the same token and byte as without drafts."""
    unstopped = ask(20, 9, HOT, max_tokens=30)
    said = plain(unstopped)
    spelt = tokenizer().decode(list(said.tokens))
    stop = next(spelt[n : n + 2] for n in range(12, len(spelt)) if "\ufffd" not in spelt[n : n + 2])
    wanted = replace(unstopped, stop_strings=(stop,))
    alone, _ = run_alone(wanted)
    session, _ = run_alone(wanted, drafters(wanted, said, 16)[kind])
    assert session.answer == alone.answer
    assert session.answer.tokens == said.tokens[: len(session.tokens)]
    assert alone.last is not None
    assert session.last is not None
    assert session.finish is alone.finish is FinishReason.STOP_STRING
    assert session.last.text_end == alone.last.text_end == len(spelt[: spelt.index(stop)].encode())


def test_b25_an_end_that_may_not_come_yet_ends_nothing() -> None:
    """With min_tokens an EOS is not drawn before its time, whatever is drafted."""
    wanted = replace(ends_after(ask(20, 9, HOT, max_tokens=30), 3), min_tokens=12)
    for kind, drafter in drafters(wanted, plain(replace(wanted, min_tokens=0, stop_ids=())), 16).items():
        session, _ = run_alone(wanted, drafter)
        assert session.answer == plain(wanted), kind
        assert not set(wanted.stop_ids) & set(session.tokens[:12])


@pytest.mark.parametrize("most", [1, 2, 9])
def test_b26_at_most_max_tokens_for_every_draft_length(most: int) -> None:
    """No D from 0 to 16 makes an answer longer than max_tokens, 1 included, or gives a block positions beyond it."""
    longer = ask(20, 2, max_tokens=40)
    wanted = replace(longer, max_tokens=most)
    engine = Engine()
    sessions = [engine.open(wanted, guesses(wanted, plain(longer), depth)) for depth in range(17)]
    sessions.append(engine.open(wanted, adversarial(wanted, plain(longer), 16)))
    engine.run()
    for session in sessions:
        assert session.answer == plain(wanted)
        assert session.finish is FinishReason.LENGTH
        assert session.turn.tokens == [*wanted.prompt, *session.tokens]
    assert all(part.block.end <= 20 + most for step in engine.steps for part in step.parts)


@pytest.mark.parametrize("depth", [0, 1, 16])
def test_b26_drafts_are_part_of_the_kv_budget(depth: int) -> None:
    """A sequence that just fits the KV memory is served with D = 16 as with D = 0: a block never outgrows the pages."""
    wanted = ask(100, 2, max_tokens=60)
    runner = target(pages=2)
    engine = Engine(runner)
    session = engine.open(wanted, guesses(wanted, plain(wanted), depth))
    engine.run()
    assert session.finish is FinishReason.LENGTH
    assert tuple(session.tokens) == plain(wanted).tokens[:28], "two pages hold 128 positions"
    assert engine.leftover == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ended", [False, True])
def test_b27_usage_equals_what_was_delivered(kind: str, ended: bool) -> None:
    """The totals of a turn add up to the delivered tokens, and no part is larger than its whole."""
    unstopped = ask(70, 4, HOT, max_tokens=33)
    wanted = ends_after(unstopped, 9) if ended else unstopped
    session, engine = run_alone(wanted, drafters(wanted, plain(unstopped), 11)[kind])
    totals, delivered = session.totals, len(session.tokens)
    assert delivered == len(session.turn.tokens) - len(wanted.prompt) == len(plain(wanted).tokens)
    assert len(session.logprobs) == delivered
    cut = ended and delivered == totals.accepted_tokens + totals.verify_steps - 1
    assert delivered == totals.accepted_tokens + totals.verify_steps - cut
    assert totals.plain_steps <= totals.verify_steps <= delivered
    assert totals.accepted_tokens <= min(totals.draft_tokens, delivered)
    assert totals.draft_tokens <= totals.received_nodes
    assert totals.cached_tokens <= len(wanted.prompt)
    assert 0 < totals.verify_us <= round(engine.now * 1e6)


async def test_b27_the_edge_reports_the_same_usage() -> None:
    """Over a real connection the usage that a caller sees counts the ids that it got, an end in a draft included."""
    model = local.tiny_model("llama")
    prompt = [5, 6, 7, 8]
    said = local.one_at_a_time(model.runner, prompt, HOT, 1, 30, ())
    end = next(n for n in range(9, 30) if said[n] not in said[:n])
    async with local.verifier(model) as address:
        client = local.edge(address, model, OracleDrafter(said, start=4), 8)
        async with client:
            request = TurnRequest(HOT, 1, 30, stop_ids=(said[end],), end_ids=())
            done = await local.complete(client, prompt, request)
    usage = as_json(done)["usage"]
    assert list(done.token_ids) == said[: end + 1]
    assert isinstance(usage, dict)
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (4, end + 1, end + 5)
    assert done.totals.accepted_tokens <= min(done.totals.draft_tokens, len(done.token_ids))
    assert done.totals.verify_steps + done.totals.accepted_tokens >= len(done.token_ids)


def test_b27_sessions_keep_their_own_totals() -> None:
    """In a batch the drafted and accepted counts of a session are those that it has alone."""
    asks = [ask(10, n, max_tokens=20) for n in range(4)]
    engine = Engine()
    sessions: list[Session] = []
    for n, wanted in enumerate(asks):
        sessions.append(engine.open(wanted, guesses(wanted, plain(wanted), 2 + n, 0.7)))
    engine.run()
    for n, (wanted, session) in enumerate(zip(asks, sessions, strict=True)):
        alone = run_alone(wanted, guesses(wanted, plain(wanted), 2 + n, 0.7))[0].totals
        together = session.totals
        assert (together.verify_steps + together.accepted_tokens) == (alone.verify_steps + alone.accepted_tokens) == 20
