"""A verifier as the published schemes use it: it answers one chain at a time, and otherwise waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from acespec.sim.world.place import Place
from acespec.sim.world.strategies.answer import Answer
from acespec.sim.world.strategies.letters import Line, ids_bytes
from acespec.sim.world.verifier_queue import VerifierQueue


@dataclass(frozen=True, slots=True)
class Chain:
    """Drafts on their way up: `drafts` of them for `position` on, drafted behind `ahead` unverified tokens."""

    position: int
    drafts: int
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of `chain`: its first `accepted` drafts were right, and `committed` tokens are final by it.

    `wait_ms` passed from the chain's leaving the edge to the verdict's coming: C.
    """

    chain: Chain
    accepted: int
    committed: int
    wait_ms: float

    @property
    def all_kept(self) -> bool:
        """No draft was wrong."""
        return self.accepted == self.chain.drafts


class Remote:
    """An edge's session with the verifier, seen from the edge; KV of the conversation is kept there.

    With `bonus`, a step also yields the target's own token behind a chain that was kept whole. `up_bytes` are those of
    a chain by its drafts, `down_bytes` those of a verdict by its drafts and how many of them were accepted.
    """

    def __init__(
        self,
        place: Place,
        queue: VerifierQueue,
        *,
        up_bytes: Callable[[int], int],
        down_bytes: Callable[[int, int], int],
        bonus: bool = True,
    ) -> None:
        self._place = place
        self._queue = queue
        self._line = Line(place)
        self._up_bytes = up_bytes
        self._down_bytes = down_bytes
        self._bonus = bonus

    def ask(self, answer: Answer, then: Callable[[], None]) -> None:
        """Send the prompt; `then` is called at the edge when the first token is there."""
        place, prompt = self._place, len(answer.wish.prompt)

        def drawn() -> None:
            self._line.down(ids_bytes(1, place.vocab), then)

        self._line.up(ids_bytes(prompt, place.vocab), lambda: self._queue.prefill(prompt, drawn))

    def judge(self, answer: Answer, chain: Chain, then: Callable[[Verdict], None]) -> None:
        """Send a chain now; `then` is called at the edge with its verdict."""
        place = self._place
        sent = place.agenda.now

        def arrived() -> None:
            self._queue.verify(chain.drafts + self._bonus, chain.position, verified)

        def verified() -> None:
            accepted = answer.kept(chain.position, chain.drafts, chain.ahead)
            committed = accepted + (self._bonus or accepted < chain.drafts)
            place.recorder.verified(place.number, chain.drafts, accepted)
            self._line.down(self._down_bytes(chain.drafts, accepted), lambda: judged(accepted, committed))

        def judged(accepted: int, committed: int) -> None:
            then(Verdict(chain, accepted, committed, 1000 * (place.agenda.now - sent)))

        place.recorder.drafted(place.number, chain.drafts)
        self._line.up(self._up_bytes(chain.drafts), arrived)
