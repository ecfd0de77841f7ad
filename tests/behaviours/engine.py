"""The real engine over a tiny torch model, step by step in virtual time, and the bare loop that it has to equal.

Turn table, scheduler, pages and runner are those that serve; only the clock and the edge's drafts are the test's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from acespec.cloud.backend import Committed, Offer, SessionKey, TurnSpec
from acespec.cloud.draw_rule import Constraint, DrawRule
from acespec.cloud.runner import Block, Runner, pages_for
from acespec.cloud.scheduler import FreeRun, Step
from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.cloud.turn import Limits, Turn
from acespec.cloud.turn_table import TurnTable
from acespec.models.text_stream import TextStream
from acespec.models.tokenizer import Tokenizer
from acespec.proto.logprobs import TokenLogprobs
from acespec.proto.messages import FinishReason, Totals
from acespec.proto.nodes import ROOT, Node
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.timing_profile import TimingProfile
from tests.cloud.torch_runners import VOCAB, text, tiny_folder
from tests.tiny import ModelType

GREEDY = SamplingParams()
HOT = SamplingParams(temperature=0.8)
LENGTH = 512

FREE = TimingProfile("free rows", ((1, 0.01), (256, 0.01)), 0.0, 20_000.0, "made up")
"""Rows cost nothing, so every draft is verified as far as it reaches."""
DEAR = TimingProfile("dear rows", ((1, 0.01), (256, 2.56)), 0.0, 20_000.0, "made up")
"""A row costs as much as a step, so none but sure drafts pay."""

Nodes = list[tuple[int, int]]
"""Draft nodes: (index of the parent among them or -1, token)."""
Drafter = Callable[[Sequence[int]], Nodes]
"""From the tokens so far to a draft behind them."""


@cache
def target(family: ModelType = "llama", pages: int | None = None, vocab: int = VOCAB) -> TorchRunner:
    """A tiny model that stays loaded; whoever uses it gives all pages back."""
    return TorchRunner.load(tiny_folder(family), vocab_size=vocab, kv_pages=pages)


@cache
def reference(family: ModelType = "llama", vocab: int = VOCAB) -> TorchRunner:
    """The same model with pages of its own."""
    return TorchRunner.load(tiny_folder(family), vocab_size=vocab, kv_pages=pages_for(LENGTH))


@cache
def tokenizer() -> Tokenizer:
    """That of all tiny models."""
    return Tokenizer.load(tiny_folder())


@dataclass(frozen=True, slots=True)
class Ask:
    """A request."""

    prompt: tuple[int, ...]
    params: SamplingParams = GREEDY
    seed: int = 0
    max_tokens: int = 24
    stop_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    min_tokens: int = 0
    top_logprobs: int | None = 3


def ask(length: int, seed: int = 0, params: SamplingParams = GREEDY, **more: object) -> Ask:
    """A request over a random prompt of `length` tokens."""
    return Ask(tuple(text(length, seed)), params, seed, **more)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it, log probabilities included."""

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@cache
def plain(wanted: Ask, family: ModelType = "llama", vocab: int = VOCAB) -> Answer:
    """The bare loop: one token a forward pass, prompt included; no service, no cache, no drafts."""
    return bare_loop(wanted, reference(family, vocab))


def bare_loop(wanted: Ask, runner: Runner, constraint: Constraint | None = None) -> Answer:
    """See `plain`. Knows stop ids and lengths."""
    banned = wanted.stop_ids if wanted.min_tokens else ()
    rule = DrawRule(
        wanted.params, wanted.seed, len(wanted.prompt), banned, wanted.min_tokens, wanted.top_logprobs, constraint
    )
    tokens, reported = list(wanted.prompt), []
    pages = tuple(range(pages_for(LENGTH)))
    last = min(len(wanted.prompt) + wanted.max_tokens, LENGTH)
    position = 0
    while len(tokens) < last:
        inner = position < len(tokens) - 1
        (drawn,) = runner.step([Block(pages, position, (tokens[position],), tokens, int(inner), rule)])
        tokens += drawn.tokens
        reported += drawn.logprobs
        position += 1
        if drawn.tokens and drawn.tokens[0] in wanted.stop_ids:
            break
    return Answer(tuple(tokens[len(wanted.prompt) :]), tuple(reported))


# -- drafters ------------------------------------------------------------------------------------------------------


def chain(tokens: Sequence[int]) -> Nodes:
    """One path."""
    return [(at - 1, token) for at, token in enumerate(tokens)]


def guesses(wanted: Ask, answer: Answer, depth: int, share: float = 1.0, vocab: int = VOCAB) -> Drafter:
    """Chains of `depth` tokens; at a `share` of the positions, always the same ones, they are right."""
    whole = (*wanted.prompt, *answer.tokens)

    def propose(tokens: Sequence[int]) -> Nodes:
        coming = range(len(tokens), min(len(tokens) + depth, len(whole)))
        right = (random.Random(wanted.seed * 1_000_003 + at).random() < share for at in coming)
        return chain([whole[at] if hit else (whole[at] + 1) % vocab for at, hit in zip(coming, right, strict=True)])

    return propose


def adversarial(wanted: Ask, answer: Answer, depth: int, vocab: int = VOCAB) -> Drafter:
    """Bushy trees: wrong siblings first, each with a tail that would be right elsewhere, the right one last."""
    whole = (*wanted.prompt, *answer.tokens)

    def propose(tokens: Sequence[int]) -> Nodes:
        nodes: Nodes = []
        parent = -1
        for at in range(len(tokens), min(len(tokens) + depth, len(whole))):
            for wrong in (whole[at] + 1, whole[at] + 7):
                nodes.append((parent, wrong % vocab))
                nodes.append((len(nodes) - 1, whole[at]))
            nodes.append((parent, whole[at]))
            parent = len(nodes) - 1
        return nodes

    return propose


def drafters(wanted: Ask, answer: Answer, depth: int, vocab: int = VOCAB) -> dict[str, Drafter | None]:
    """One of every kind."""
    return {
        "none": None,
        "right": guesses(wanted, answer, depth, 1.0, vocab),
        "partly right": guesses(wanted, answer, depth, 0.6, vocab),
        "wrong": guesses(wanted, answer, depth, 0.0, vocab),
        "adversarial": adversarial(wanted, answer, depth, vocab),
    }


KINDS = ("none", "right", "partly right", "wrong", "adversarial")
MAIN_KINDS = ("none", "partly right", "adversarial")


# -- the engine ----------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Session:
    """One turn and what its edge was told."""

    key: SessionKey
    wanted: Ask
    turn: Turn
    drafter: Drafter | None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    sent: int = 0
    epoch: int = 0
    last: Committed | None = None

    @property
    def answer(self) -> Answer:
        return Answer(tuple(self.tokens), tuple(self.logprobs))

    @property
    def totals(self) -> Totals:
        assert self.last is not None
        assert self.last.totals is not None
        return self.last.totals

    @property
    def finish(self) -> FinishReason | None:
        return self.last.finish if self.last else None


class Engine:
    """The turn table over `runner`; `now` moves by what each step is said to take."""

    def __init__(
        self,
        runner: Runner | None = None,
        *,
        timing: TimingProfile = FREE,
        free_run: FreeRun = FreeRun.ALWAYS,
        max_rows: int = 256,
        limits: Limits | None = None,
        quantum_s: float = 5.0,
    ) -> None:
        self.runner = runner or target()
        self.table = TurnTable(
            self.runner,
            limits=limits or Limits(max_length=LENGTH),
            decoder=lambda: TextStream(tokenizer()),
            free_run=free_run,
            max_rows=max_rows,
            timing=timing,
            quantum_s=quantum_s,
        )
        self.now = 0.0
        self.sessions: dict[SessionKey, Session] = {}
        self.steps: list[Step] = []
        self._opened = 0

    def open(
        self,
        wanted: Ask,
        drafter: Drafter | None = None,
        *,
        principal: str = "p",
        key: SessionKey | None = None,
        rate: float = 0.0,
        constraint: Constraint | None = None,
        done: Sequence[int] = (),
        epoch: int = 0,
    ) -> Session:
        """Start a turn, of a session of its own unless `key` names one; `done` is what it had generated elsewhere."""
        self._opened += 1
        key = key or (principal, self._opened.to_bytes(16, "big"))
        spec = TurnSpec(
            session=key,
            tokens=(*wanted.prompt, *done),
            prompt_len=len(wanted.prompt),
            params=wanted.params,
            seed=wanted.seed,
            max_tokens=wanted.max_tokens,
            stop_ids=wanted.stop_ids,
            stop_strings=wanted.stop_strings,
            rate=rate,
            epoch=epoch,
            min_tokens=wanted.min_tokens,
            top_logprobs=wanted.top_logprobs,
            constraint=constraint,
        )
        self.table.open(self.now, spec)
        turn = next(t for t in self.table.turns if t.spec is spec)
        session = self.sessions[key] = Session(key, wanted, turn, drafter, list(done), epoch=epoch)
        return session

    def draft(self) -> None:
        """Every edge whose drafts are used up sends new ones."""
        for session in list(self.sessions.values()):
            turn = session.turn
            if session.drafter and turn.finish is None and not turn.closed and not len(turn._tree):
                self.offer(session, session.drafter(turn.tokens))

    def offer(self, session: Session, nodes: Nodes, base: int | None = None) -> None:
        """A draft behind the first `base` tokens, or the tip."""
        first, length = session.sent, len(session.turn.tokens)
        session.sent += len(nodes)
        sent = tuple(Node(ROOT if parent < 0 else first + parent, token) for parent, token in nodes)
        self.table.offer(
            self.now,
            session.key,
            Offer(session.epoch, first, sent, length if base is None else base, length),
        )

    def plan(self) -> Step | None:
        return self.table.plan(self.now)

    def land(self, step: Step) -> None:
        """Run a planned step and hand out what it committed."""
        self.steps.append(step)
        drawn = self.runner.step(step.blocks)
        self.now += step.seconds
        for key, committed in self.table.complete(self.now, step, drawn, step.seconds):
            session = self.sessions[key]
            session.tokens += committed.tokens
            session.logprobs += committed.logprobs
            session.last = committed

    def step(self) -> Step | None:
        self.draft()
        planned = self.plan()
        if planned is None:
            self.now += 0.005
        else:
            self.land(planned)
        return planned

    def run(self, after: Callable[[Step], None] = lambda _: None) -> None:
        """Until all turns have ended."""
        for _ in range(20_000):
            if not self.table.turns:
                return
            if (done := self.step()) is not None:
                after(done)
        raise AssertionError("a turn never ends")

    def close(self, session: Session) -> None:
        """The edge gives the turn up."""
        session.last = self.table.close(session.key) or session.last

    @property
    def leftover(self) -> int:
        """Pages that are not accounted for once nobody runs."""
        pages = self.table.pages
        pages.drop_cached()
        return self.runner.pages - pages.free


def run_alone(
    wanted: Ask, drafter: Drafter | None = None, runner: Runner | None = None, **more: object
) -> tuple[Session, Engine]:
    """One turn on a fresh engine."""
    engine = Engine(runner, **more)  # type: ignore[arg-type]
    session = engine.open(wanted, drafter)
    engine.run()
    return session, engine


def verify_blocks(engine: Engine, session: Session) -> list[Block]:
    """The blocks that verified drafts of a session, or decoded plainly."""
    parts = (part for step in engine.steps for part in step.parts)
    return [part.block for part in parts if part.turn is session.turn and part.block.sample_from == 0]
