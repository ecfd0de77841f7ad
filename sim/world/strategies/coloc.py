"""Co-located speculative decoding: drafter and target in one cloud, tokens stream down (form 2; T_coloc of Speculation
at a Distance, arXiv 2606.25091).

The drafter is as accurate as the edge's and takes `cloud_draft_ms` a token; drafting holds up the step that verifies,
and sessions of one step are drafted for together. D is fixed, or the best of form 2. A message goes down after each
step or, while the link is busy, with the tokens of several: it fills the link and no queue.
"""

from __future__ import annotations

from collections.abc import Mapping

from acespec.sim.theory.single_session import colocated_ms
from acespec.sim.world.place import Actor, Place, Wish
from acespec.sim.world.scenario import Value
from acespec.sim.world.strategies.answer import Answer, Answers
from acespec.sim.world.strategies.draft_length import DraftLength, EdgeDraftLength, acceptance_of
from acespec.sim.world.strategies.letters import Line, ids_bytes
from acespec.sim.world.verifier_queue import VerifierQueue
from acespec.sim.world.world import World


class Colocated:
    """Parameters: `draft`, `cloud_draft_ms`."""

    name = "coloc"

    def __init__(self, world: World, params: Mapping[str, Value]) -> None:
        self._answers = Answers(world)
        self._queue = world.verifier_queue()
        self._t_dc = float(params["cloud_draft_ms"])
        a = acceptance_of(world)
        self._length = DraftLength(
            world, self._answers, str(params["draft"]), lambda costs, D: colocated_ms(costs, a, D), t_dc=self._t_dc
        )

    def begin(self, place: Place) -> Actor:
        """See `Strategy.begin`."""
        return _Session(self._answers, place, self._queue, EdgeDraftLength(self._length), self._t_dc)


class _Session:
    def __init__(
        self, answers: Answers, place: Place, queue: VerifierQueue, length: EdgeDraftLength, cloud_draft_ms: float
    ) -> None:
        self._answers = answers
        self._place = place
        self._queue = queue
        self._length = length
        self._t_dc = cloud_draft_ms
        self._line = Line(place)

    def start(self, wish: Wish) -> None:
        """See `Actor.start`."""
        answer, prompt = self._answers.begin(self._place, wish), len(wish.prompt)
        decoding = _Decoding(self, answer)
        self._line.up(
            ids_bytes(prompt, self._place.vocab), lambda: self._queue.prefill(prompt, lambda: decoding.commit(1))
        )

    def verify(self, decoding: _Decoding, position: int) -> None:
        """Draft and verify from `position` on."""
        drafts, began = self._length.now, self._place.agenda.now
        drafting_ms = drafts * self._t_dc

        def verified() -> None:
            self._length.waited(drafts, 1000 * (self._place.agenda.now - began) - drafting_ms)
            accepted = decoding.answer.kept(position, drafts)
            self._place.recorder.verified(self._place.number, drafts, accepted)
            decoding.commit(accepted + 1)

        self._place.recorder.drafted(self._place.number, drafts)
        self._queue.verify(drafts + 1, position, verified, draft_s=drafting_ms / 1000)

    def deliver(self, answer: Answer, tokens: int) -> None:
        """Send tokens to their reader."""
        self._line.down(ids_bytes(tokens, self._place.vocab), lambda: _show(answer, tokens))

    @property
    def link_is_clear(self) -> bool:
        """Whether a message would leave soon."""
        return self._line.down_is_clear


class _Decoding:
    """One answer in the making. Tokens up to `position` are final, the last `_unsent` of them not yet on their way."""

    def __init__(self, session: _Session, answer: Answer) -> None:
        self.answer = answer
        self._session = session
        self._position = answer.position
        self._unsent = 0

    def commit(self, tokens: int) -> None:
        """`tokens` more are final."""
        tokens = min(tokens, self.answer.end - self._position)
        self._position += tokens
        self._unsent += tokens
        ended = self._position == self.answer.end
        if ended or self._session.link_is_clear:
            self._session.deliver(self.answer, self._unsent)
            self._unsent = 0
        if not ended:
            self._session.verify(self, self._position)


def _show(answer: Answer, tokens: int) -> None:
    answer.take(tokens)
