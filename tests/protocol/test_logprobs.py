"""Log probabilities from the target's rows to the edge: the same bits with drafts, without, and over cuts (B32).

Both wire state machines are the real ones. Between them stands the smallest backend that there can be: it draws from
rows of logits, one verify step for each message.
"""

from __future__ import annotations

import random

import pytest

from acespec.cloud.admission import Admission
from acespec.cloud.backend import Committed as Drawn
from acespec.cloud.backend import Offer, TurnSpec
from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.session import Action, Begin, Session
from acespec.edge.brain.controller import FixedController
from acespec.edge.drafters.base import Candidate
from acespec.edge.events import Committed, Event
from acespec.edge.session import EdgeSession
from acespec.edge.turn_request import TurnRequest
from acespec.proto import wire
from acespec.proto.logprobs import TokenLogprobs
from acespec.proto.messages import FinishReason, ModelCard
from acespec.proto.sampling_params import SamplingParams
from tests.cloud.rows import block_of, plain, step

VOCAB = 40
PROMPT = [7, 8, 9]
TOKENS = 40
PARAMS = SamplingParams(temperature=0.75, top_k=20, repetition_penalty=1.25)
CARD = ModelCard("rows", VOCAB, bytes(16), (), 512, 1, b"", "rows", 16, 64, 400, (), "test", 1, True, "always")


class Ends:
    """An edge and a cloud, in lock step."""

    def __init__(self, request: TurnRequest, right: float, seed: int) -> None:
        self.edge = EdgeSession(fingerprint=bytes(16), vocab_size=VOCAB, controller=FixedController(4))
        self.cloud = Session(("p", bytes(16)), Admission(CARD, lambda text: []), lambda message: 30)
        self.request = request
        self.right = right
        self.dice = random.Random(seed)
        self.now = 0.0
        self.bytes_down = 0
        self.spec: TurnSpec | None = None
        self.drafts: list[Offer] = []
        self.told: list[Committed] = []
        self.truth = plain(PROMPT, DrawRule(PARAMS, request.seed, len(PROMPT)), VOCAB, TOKENS)

    def run(self, cuts: int) -> tuple[list[int], list[TokenLogprobs]]:
        self.edge.start_turn(self.now, PROMPT, self.request)
        while self.edge.running:
            self.now += 0.05
            self.draft()
            self.up()
            if self.spec is not None and self.cloud.running:
                self.verify(self.spec)
            if cuts and self.dice.random() < 0.2:
                cuts -= 1
                self.cloud.disconnected()
                self.edge.reconnect(self.now)
            else:
                self.down()
        items = [item for event in self.told for item in event.logprobs]
        return [token for event in self.told for token in event.tokens], items

    def draft(self) -> None:
        if job := self.edge.draft_job():
            coming = self.truth[len(job.path) - len(PROMPT) :][: job.room]
            guesses = [t if self.dice.random() < self.right else self.dice.randrange(VOCAB) for t in coming]
            found = [[Candidate(t, 0.9, "lm")] for t in guesses]
            self.edge.drafted(job, found, seconds=0.001, silent=True)

    def up(self) -> None:
        while (data := self.edge.poll(self.now)) is not None:
            for action in self.cloud.receive(self.now, wire.decode_edge(data)):
                self.act(action)
        self.down()

    def act(self, action: Action) -> None:
        if isinstance(action, Begin):
            self.spec = action.spec
        elif isinstance(action, Offer) and action.nodes:
            self.drafts.append(action)

    def verify(self, spec: TurnSpec) -> None:
        tokens = self.cloud.tokens
        offer = self.drafts.pop() if self.drafts else None
        self.drafts.clear()
        usable = offer is not None and offer.base == len(tokens) and offer.epoch == self.cloud.epoch
        chain = [node.token for node in offer.nodes] if offer is not None and usable else []
        rule = DrawRule(spec.params, spec.seed, spec.prompt_len, top_logprobs=spec.top_logprobs)
        drawn = step(block_of(tokens, chain, rule), VOCAB)
        left = spec.prompt_len + spec.max_tokens - len(tokens)
        kept = drawn.tokens[:left]
        hit = min(len(drawn.tokens) - 1, len(kept))
        matched = (offer.first_id + hit - 1, len(tokens) + hit - 1) if offer is not None and hit else None
        finish = FinishReason.LENGTH if len(kept) == left else None
        self.cloud.committed(Drawn(kept, self.cloud.epoch, matched, finish=finish, logprobs=drawn.logprobs[:left]))

    def down(self) -> None:
        while (message := self.cloud.poll(self.now)) is not None:
            data = wire.encode_cloud(message)
            self.bytes_down += len(data)
            for event in self.edge.receive(self.now, data):
                self.hear(event)

    def hear(self, event: Event) -> None:
        if isinstance(event, Committed):
            self.told.append(event)


@pytest.mark.parametrize("top", [0, 2, 20])
@pytest.mark.parametrize(("right", "cuts"), [(1.0, 0), (0.7, 0), (0.0, 0), (0.7, 3)])
def test_the_edge_is_told_the_bits_of_plain_decoding(top: int, right: float, cuts: int) -> None:
    rule = DrawRule(PARAMS, 3, len(PROMPT), top_logprobs=top)
    ends = Ends(TurnRequest(params=PARAMS, seed=3, max_tokens=TOKENS, top_logprobs=top), right, seed=top)
    tokens, items = ends.run(cuts)
    assert tokens == ends.truth
    whole = [*PROMPT, *tokens]
    alone = [step(block_of(whole[: len(PROMPT) + i], (), rule), VOCAB).logprobs[0] for i in range(TOKENS)]
    assert items == alone
    if right == 1.0:
        assert len(ends.told) < TOKENS / 2, "drafts were verified"


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    def cost(top: int | None) -> int:
        ends = Ends(TurnRequest(params=PARAMS, seed=3, max_tokens=TOKENS, top_logprobs=top), 0.0, seed=1)
        tokens, items = ends.run(0)
        assert tokens == ends.truth
        assert len(items) == (0 if top is None else TOKENS)
        return ends.bytes_down

    bare, own, more = cost(None), cost(0), cost(2)
    assert 5 * TOKENS <= own - bare <= 8 * TOKENS
    assert more - own >= 16 * TOKENS
