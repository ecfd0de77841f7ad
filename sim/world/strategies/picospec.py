"""PicoSpec (arXiv 2603.19133): a pipeline of depth 1. While D drafts are judged, the edge drafts D more as if all were
kept; if they are, these go up at once, else they are flushed and D others drafted (form 4).

A step yields no bonus token (its count E'), so a chain that is kept commits D tokens. Ids go up with the drafter's
probabilities, 64 bits a pair; a rejection is answered by the ten likeliest target tokens with theirs, 64 bits each,
from which the edge draws the correction, any other verdict by a count. Unstated there and decided here: those widths
(theory, section 6, has 34 bits packed); that the next chain waits for the verdict, as its form does; the best D is form
4's; the verifier keeps the KV of the conversation; the drafter takes no time over the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping

from acespec.sim.theory.pipelines import picospec_ms
from acespec.sim.world.place import Actor, Place, Wish
from acespec.sim.world.scenario import Value
from acespec.sim.world.strategies.answer import Answer, Answers
from acespec.sim.world.strategies.draft_length import DraftLength, EdgeDraftLength, acceptance_of
from acespec.sim.world.strategies.letters import COUNT, ENVELOPE, pairs_bytes, round_ms
from acespec.sim.world.strategies.remote import Chain, Remote, Verdict
from acespec.sim.world.world import World


class PicoSpec:
    """Parameters: `draft`, `pair_bits`, `top`."""

    name = "picospec"

    def __init__(self, world: World, params: Mapping[str, Value]) -> None:
        self._answers = Answers(world)
        self._queue = world.verifier_queue()
        self._pair_bits = int(params["pair_bits"])
        self._top = int(params["top"])
        spec = world.scenario.link.spec()
        a = acceptance_of(world)
        self._length = DraftLength(
            world,
            self._answers,
            str(params["draft"]),
            lambda costs, D: picospec_ms(costs, a, D),
            R=spec.rtt_ms,
            tau=lambda D: round_ms(spec, self._up_bytes(D), self._down_bytes(D, 0)),
        )

    def begin(self, place: Place) -> Actor:
        """See `Strategy.begin`."""
        remote = Remote(place, self._queue, up_bytes=self._up_bytes, down_bytes=self._down_bytes, bonus=False)
        return _Edge(self._answers, place, remote, EdgeDraftLength(self._length))

    def _up_bytes(self, drafts: int) -> int:
        return pairs_bytes(drafts, self._pair_bits)

    def _down_bytes(self, drafts: int, accepted: int) -> int:
        return COUNT + (ENVELOPE if accepted == drafts else pairs_bytes(self._top, self._pair_bits))


class _Edge:
    """`_drafted_at`: when the chain that follows the one under way is complete."""

    def __init__(self, answers: Answers, place: Place, remote: Remote, length: EdgeDraftLength) -> None:
        self._answers = answers
        self._place = place
        self._agenda = place.agenda
        self._remote = remote
        self._length = length
        self._next = 0
        self._drafted_at = 0.0

    def start(self, wish: Wish) -> None:
        """See `Actor.start`."""
        answer = self._answers.begin(self._place, wish)
        self._remote.ask(answer, lambda: self._begin(answer))

    def _begin(self, answer: Answer) -> None:
        if answer.take(1):
            self._draft()
            self._send_when_drafted(answer, 0)

    def _draft(self) -> None:
        self._next = self._length.now
        self._drafted_at = self._agenda.now + self._next * self._place.token_s

    def _send_when_drafted(self, answer: Answer, ahead: int) -> None:
        chain = Chain(answer.position, self._next, ahead)
        self._agenda.at(max(self._agenda.now, self._drafted_at), lambda: self._send(answer, chain))

    def _send(self, answer: Answer, chain: Chain) -> None:
        self._draft()
        self._remote.judge(answer, chain, lambda verdict: self._judged(answer, verdict))

    def _judged(self, answer: Answer, verdict: Verdict) -> None:
        drafts = verdict.chain.drafts
        self._length.waited(drafts, verdict.wait_ms)
        if answer.take(verdict.committed):
            if not verdict.all_kept:
                self._draft()
            self._send_when_drafted(answer, drafts if verdict.all_kept else 0)
