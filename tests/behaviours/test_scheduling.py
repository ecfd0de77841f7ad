"""Scheduling: B34 to B38 of the list of behaviours."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from acespec.cloud.acceptance import ALLOWANCE, SHARE
from acespec.cloud.backend import Offer, TurnSpec
from acespec.cloud.engine import EngineBackend
from acespec.cloud.runner import PAGE
from acespec.cloud.scheduler import FreeRun, Step
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.models.text_stream import TextStream
from acespec.proto.messages import FinishReason
from acespec.proto.nodes import ROOT, Node
from acespec.proto.timing_profile import TimingProfile
from tests.behaviours.engine import (
    DEAR,
    HOT,
    LENGTH,
    MAIN_KINDS,
    Answer,
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
    run_alone,
    target,
    tokenizer,
)
from tests.cloud.torch_runners import VOCAB, poison
from tests.cloud.toy import ToyRunner, toy_text

BUSY = TimingProfile("busy", ((1, 0.010), (8, 0.010), (16, 0.013), (64, 0.040), (256, 0.160)), 0.0, 20_000.0, "made up")
"""Rows are free up to eight, so that one session may draft and a crowd may not."""
TOY, TOKENS = 64, 120


def tokens_per_s(sessions: int, share: float | None, timing: TimingProfile) -> float:
    """Of so many sessions on the toy target, whose drafts are right to this share, or that do not draft."""
    engine = Engine(ToyRunner(TOY), timing=timing, max_rows=64)
    for seed in range(sessions):
        wanted = Ask((3, 1, 4, 1, 5), HOT, seed, TOKENS, top_logprobs=None)
        answer = Answer(tuple(toy_text(wanted.prompt, seed, TOY, TOKENS)))
        engine.open(wanted, None if share is None else guesses(wanted, answer, 8, share, TOY), principal=f"p{seed}")
    engine.run()
    for session in engine.sessions.values():
        assert session.tokens == toy_text(session.wanted.prompt, session.wanted.seed, TOY, TOKENS)
    return TOKENS * sessions / engine.now


@pytest.mark.parametrize(("sessions", "timing"), [(1, BUSY), (1, DEAR), (8, BUSY), (6, DEAR), (20, BUSY)])
def test_b34_throughput_is_never_below_plain(sessions: int, timing: TimingProfile) -> None:
    """Whatever the load and the drafts, tokens/s stay at or above those of plain decoding, but for a session's stated
    allowance of three of its steps and a hundredth; where load turns drafts off nothing is lost by it."""
    bare = tokens_per_s(sessions, None, timing)
    # One step more for what early sessions draft while the prompts of the others are still on their way.
    allowance = 1 - (ALLOWANCE + SHARE * TOKENS + 1) / TOKENS
    for share in (0.0, 0.5):
        assert tokens_per_s(sessions, share, timing) >= allowance * bare, share
    assert tokens_per_s(sessions, 1.0, timing) >= 0.9999 * bare


def test_b34_drafts_pay_where_rows_are_free() -> None:
    """The same engine with one session is several times faster than plain: it does not win by never drafting."""
    assert tokens_per_s(1, 1.0, BUSY) > 4 * tokens_per_s(1, None, BUSY)


class Watched:
    """Looks at every planned step: rows carry committed tokens, and drafts that are still on offer for them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.offered: dict[Session, set[tuple[int, ...]]] = {}
        self.epochs: dict[Session, int] = {}
        self.drafted = 0

    def offer(self, session: Session, path: Sequence[int]) -> None:
        """Send a chain; a new epoch forgets what older ones brought."""
        if self.epochs.setdefault(session, session.epoch) < session.epoch:
            self.offered[session] = set()
            self.epochs[session] = session.epoch
        known = self.offered.setdefault(session, set())
        known |= {(*session.turn.tokens, *path[:end]) for end in range(1, len(path) + 1)}
        self.engine.offer(session, chain(path))

    def check(self, step: Step) -> None:
        for part in step.parts:
            turn, block = part.turn, part.block
            session = self.engine.sessions[turn.spec.session]
            assert part.turn.hold is not None
            assert block.pages == part.turn.hold.table
            committed = turn.tokens[block.start :]
            assert list(block.tokens[: len(committed)]) == committed[: len(block.tokens)], "no placeholder"
            for row in range(len(committed), len(block.tokens)):
                path = (*turn.tokens[: block.start], *(block.tokens[r] for r in block.path(row)))
                assert path in self.offered[session], "no stale draft"
                self.drafted += 1


@pytest.mark.parametrize("seed", [0])
def test_b35_no_stale_draft_is_fed_after_preemption_starvation_or_resume(seed: int) -> None:
    """In a memory that is too small, with evictions, detached edges and new epochs, every row of every step is a
    committed token or a draft of the newest epoch behind exactly that prefix; and the text is right."""
    dice = random.Random(seed)
    runner = target(pages=7)
    engine = Engine(runner, quantum_s=0.08, free_run=FreeRun.IDLE)
    watched = Watched(engine)
    asks = [ask(40 + 15 * (n % 3), n % 6, HOT, max_tokens=40) for n in range(6)]
    sessions = [engine.open(wanted, principal=f"p{n % 3}", rate=10.0) for n, wanted in enumerate(asks)]
    away: dict[Session, float] = {}
    for _ in range(20_000):
        if not engine.table.turns:
            break
        for session in sessions:
            turn = session.turn
            if turn.finish is not None:
                continue
            if away.get(session, engine.now + 1) <= engine.now:
                del away[session]
                session.epoch += 1
                session.sent = 0
                engine.table.attach(session.key, True)
            if session not in away and dice.random() < 0.3 and len(turn._tree) < 100:
                coming = plain(session.wanted).tokens[len(session.tokens) :][: dice.randrange(1, 7)]
                watched.offer(session, [t if dice.random() < 0.7 else (t + 1) % VOCAB for t in coming])
            elif session not in away and dice.random() < 0.03:
                engine.table.attach(session.key, False)
                away[session] = engine.now + dice.uniform(0.01, 0.2)
        step = engine.plan()
        if step is None:
            engine.now += 0.005
        else:
            watched.check(step)
            engine.land(step)
    assert [s.answer for s in sessions] == [plain(wanted) for wanted in asks]
    assert engine.table.residency.evictions > 3
    assert watched.drafted > 50


def test_b36_exhaustion_shrinks_d_first() -> None:
    """A session that can get no further page verifies the drafts that its last page holds, and goes on."""
    asks = [ask(PAGE - 20, n, max_tokens=18) for n in range(3)]
    engine = Engine(target(pages=3))
    for wanted in asks:
        engine.open(wanted, guesses(wanted, plain(replace(wanted, max_tokens=40)), 16))
    engine.run()
    assert [s.answer for s in engine.sessions.values()] == [plain(wanted) for wanted in asks]
    assert all(len(part.block.pages) == 1 for step in engine.steps for part in step.parts)
    assert any(len(part.block.tokens) > 5 for step in engine.steps for part in step.parts if not part.block.sample_from)


@pytest.mark.parametrize("pages", [2, 5])
@pytest.mark.parametrize("kind", MAIN_KINDS)
def test_b36_exhaustion_queues_and_never_breaks(pages: int, kind: str) -> None:
    """With memory for one session of six, all six are served in turn, right to the last token, and none holds pages
    while it waits."""
    asks = [ask(20 + 17 * n, n, max_tokens=24) for n in range(6)]
    engine = Engine(target(pages=pages), quantum_s=0.1)
    for wanted in asks:
        engine.open(wanted, drafters(wanted, plain(wanted), 12)[kind])
    while engine.table.turns:
        engine.step()
        assert all(turn.hold is None or turn.hold.table for turn in engine.table.turns)
        assert engine.table.pages.in_use <= pages
    for session in engine.sessions.values():
        fits = min(len(session.wanted.prompt) + 24, pages * PAGE) - len(session.wanted.prompt)
        assert tuple(session.tokens) == plain(session.wanted).tokens[:fits]
        assert session.finish is FinishReason.LENGTH
    assert engine.leftover == 0


# -- B37 -------------------------------------------------------------------------------------------------------------

Point = Callable[[Engine, Session], Step | None]
"""Brings an engine to where the client goes; a step that is then in flight."""


def just_opened(engine: Engine, session: Session) -> Step | None:
    return None


def within_prefill(engine: Engine, session: Session) -> Step | None:
    engine.step()
    assert session.turn.prefilling
    return None


def prefill_in_flight(engine: Engine, session: Session) -> Step | None:
    return engine.plan()


def first_token_in_flight(engine: Engine, session: Session) -> Step | None:
    engine.step()
    return engine.plan()


def decoding(engine: Engine, session: Session) -> Step | None:
    for _ in range(4):
        engine.step()
    assert session.tokens
    return None


def drafts_pending(engine: Engine, session: Session) -> Step | None:
    decoding(engine, session)
    engine.offer(session, chain([5, 6, 7]))
    return None


def verify_in_flight(engine: Engine, session: Session) -> Step | None:
    decoding(engine, session)
    engine.draft()
    step = engine.plan()
    assert step is not None
    assert any(part.turn is session.turn and len(part.block.tokens) > 1 for part in step.parts)
    return step


def finished(engine: Engine, session: Session) -> Step | None:
    while session.finish is None:
        engine.step()
    return None


POINTS: list[Point] = [
    just_opened,
    within_prefill,
    prefill_in_flight,
    first_token_in_flight,
    decoding,
    drafts_pending,
    verify_in_flight,
    finished,
]


@pytest.mark.parametrize("point", POINTS, ids=lambda p: p.__name__)
def test_b37_a_disconnect_at_any_point_frees_all_at_once(point: Point) -> None:
    """A client that goes, wherever it is, leaves no page in use and nothing behind; a late completion is ignored; and
    whoever gets its pages while its step is still in flight, full of its tokens, has the right bits."""
    leaving = ask(2 * PAGE + 20, 1, max_tokens=20)
    coming = ask(2 * PAGE + 30, 2, max_tokens=20)
    runner = target(pages=3)
    engine = Engine(runner)
    session = engine.open(leaving, guesses(leaving, plain(leaving), 6))
    in_flight = point(engine, session)
    told = list(session.tokens)
    engine.close(session)
    assert engine.table.pages.in_use == 0
    assert session.finish in (FinishReason.CANCELLED, FinishReason.LENGTH)
    heir = engine.open(coming, guesses(coming, plain(coming), 6, 0.7))
    engine.table.seat(engine.now)
    assert heir.turn.hold is not None
    assert len(heir.turn.hold.table) == 3, "all pages, those of the step in flight among them"
    if in_flight is not None:
        engine.land(in_flight)
    assert session.tokens == told, "a late completion says nothing"
    engine.run()
    assert heir.answer == plain(coming)
    engine.table.forget(session.key)
    engine.table.forget(heir.key)
    assert engine.leftover == 0
    assert not engine.table._acceptances
    assert not engine.table.scheduler._turns


def test_b37_a_late_write_would_be_noticed() -> None:
    """If a step in flight wrote after the heir's first steps, the heir's text would change: the test above can fail."""
    coming = ask(2 * PAGE + 30, 2, max_tokens=20)
    runner = target(pages=3)
    engine = Engine(runner)
    heir = engine.open(coming)
    engine.step()
    engine.step()
    assert heir.turn.hold is not None
    poison(runner, heir.turn.hold.table[1:], 0)
    engine.run()
    assert heir.answer != plain(coming)


def test_b37_a_session_opened_again_while_its_step_runs_starts_afresh() -> None:
    """A turn that replaces one of the same session takes nothing of the old one's step in flight."""
    old, new = ask(20, 1, max_tokens=60), ask(22, 2, max_tokens=20)
    engine = Engine()
    session = engine.open(old, guesses(old, plain(old), 6))
    in_flight = verify_in_flight(engine, session)
    assert in_flight is not None
    engine.close(session)
    again = engine.open(new, guesses(new, plain(new), 6), key=session.key)
    engine.land(in_flight)
    assert again.tokens == []
    engine.run()
    assert again.answer == plain(new)


# -- B38 -------------------------------------------------------------------------------------------------------------


async def overlapped(asks: Sequence[Ask], kind: str) -> list[tuple[int, ...]]:
    """The engine that serves: the model in a thread, the next step prepared meanwhile, drafts at any moment."""
    limits = Limits(max_length=LENGTH)
    runner = target(pages=24)
    backend = EngineBackend(
        runner,
        TurnTable(runner, limits=limits, decoder=lambda: TextStream(tokenizer()), free_run=FreeRun.ALWAYS, max_rows=64),
    )

    async def client(number: int, wanted: Ask) -> tuple[int, ...]:
        key = (f"p{number % 3}", number.to_bytes(16, "big"))
        spec = TurnSpec(
            key, wanted.prompt, len(wanted.prompt), wanted.params, wanted.seed, wanted.max_tokens, wanted.stop_ids
        )
        tokens, ids = list(wanted.prompt), iter(range(0, 10**6, 300))
        drafter: Drafter | None = drafters(wanted, plain(wanted), 6)[kind]
        async for committed in backend.open(spec):
            tokens += committed.tokens
            if drafter and committed.finish is None:
                backend.offer(key, offer_of(drafter(tokens), next(ids), len(tokens)))
                await asyncio.sleep(0)
        return tuple(tokens[len(wanted.prompt) :])

    async with backend:
        said = await asyncio.gather(*(client(n, wanted) for n, wanted in enumerate(asks)))
        assert backend.table.pages.in_use == 0
    return list(said)


def offer_of(nodes: Nodes, first: int, length: int) -> Offer:
    sent = tuple(Node(ROOT if parent < 0 else first + parent, token) for parent, token in nodes)
    return Offer(0, first, sent, length, length)


@pytest.mark.parametrize("kind", MAIN_KINDS)
async def test_b38_overlapped_steps_give_the_tokens_of_the_simple_loop(kind: str) -> None:
    """Sessions on the serving engine, whose next step is prepared while one runs and whose drafts come at any moment,
    say what they say in the simple loop, and what bare decoding says."""
    asks = [ask(10 + 25 * n, n, HOT, max_tokens=12 + 3 * n) for n in range(6)]
    simple = [tuple(run_alone(wanted, drafters(wanted, plain(wanted), 6)[kind])[0].tokens) for wanted in asks]
    assert simple == [plain(wanted).tokens for wanted in asks]
    assert await overlapped(asks, kind) == simple
