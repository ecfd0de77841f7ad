"""Stop-and-wait: draft D, send, wait for the verdict, begin again (form 3; T_dsd of Speculation at a Distance, arXiv
2606.25091).

D is fixed, or the best by `theory.stopping`, at least 1. What the papers leave open is decided in its favour: messages
are as small as exactness allows, packed ids up, a count and one id down, since with shared noise (arXiv 2408.07978)
nothing else is needed; the verifier keeps the KV of the conversation; the drafter takes no time over the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping

from acespec.sim.theory.single_session import stop_and_wait_ms
from acespec.sim.world.place import Actor, Place, Wish
from acespec.sim.world.scenario import Value
from acespec.sim.world.strategies.answer import Answer, Answers
from acespec.sim.world.strategies.draft_length import DraftLength, EdgeDraftLength, acceptance_of
from acespec.sim.world.strategies.letters import COUNT, ids_bytes, round_ms
from acespec.sim.world.strategies.remote import Chain, Remote, Verdict
from acespec.sim.world.world import World


class StopAndWait:
    """Parameters: `draft`."""

    name = "stop-and-wait"

    def __init__(self, world: World, params: Mapping[str, Value]) -> None:
        self._answers = Answers(world)
        self._queue = world.verifier_queue()
        self._vocab = world.scenario.target.vocab
        spec = world.scenario.link.spec()
        a = acceptance_of(world)
        self._length = DraftLength(
            world,
            self._answers,
            str(params["draft"]),
            lambda costs, D: stop_and_wait_ms(costs, a, D),
            R=spec.rtt_ms,
            tau=lambda D: round_ms(spec, self._up_bytes(D), self._down_bytes(D, 0)),
        )

    def begin(self, place: Place) -> Actor:
        """See `Strategy.begin`."""
        remote = Remote(place, self._queue, up_bytes=self._up_bytes, down_bytes=self._down_bytes)
        return _Edge(self._answers, place, remote, EdgeDraftLength(self._length))

    def _up_bytes(self, drafts: int) -> int:
        return ids_bytes(drafts, self._vocab)

    def _down_bytes(self, drafts: int, accepted: int) -> int:
        return COUNT + ids_bytes(1, self._vocab)


class _Edge:
    def __init__(self, answers: Answers, place: Place, remote: Remote, length: EdgeDraftLength) -> None:
        self._answers = answers
        self._place = place
        self._remote = remote
        self._length = length

    def start(self, wish: Wish) -> None:
        """See `Actor.start`."""
        answer = self._answers.begin(self._place, wish)
        self._remote.ask(answer, lambda: self._go_on(answer, 1))

    def _go_on(self, answer: Answer, tokens: int) -> None:
        if answer.take(tokens):
            chain = Chain(answer.position, self._length.now)
            drafted_at = self._place.agenda.now + chain.drafts * self._place.token_s
            self._place.agenda.at(drafted_at, lambda: self._send(answer, chain))

    def _send(self, answer: Answer, chain: Chain) -> None:
        self._remote.judge(answer, chain, lambda verdict: self._judged(answer, verdict))

    def _judged(self, answer: Answer, verdict: Verdict) -> None:
        self._length.waited(verdict.chain.drafts, verdict.wait_ms)
        self._go_on(answer, verdict.committed)
