"""The real edge in the world: session and controller, with a replayed drafter that takes virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acespec.edge.brain.adaptive import AdaptiveController
from acespec.edge.brain.controller import Controller
from acespec.edge.brain.draft_worker import HOP_S
from acespec.edge.brain.tree_shape import TreeShape
from acespec.edge.drafters.base import Candidate, TurnContext
from acespec.edge.drafters.replay import ReplayDrafter
from acespec.edge.events import Committed, Event, Finished
from acespec.edge.session import EdgeSession
from acespec.edge.turn_request import TurnRequest
from acespec.proto.replay_text import end_id
from acespec.sim.edge_driver import EdgeDriver
from acespec.sim.narrow_stream import NarrowStream
from acespec.sim.world.place import Place, Wish
from acespec.sim.world.result import Drafting
from acespec.sim.world.strategies.real_verifier import FINGERPRINT, RealVerifier, session_id


class RealEdge(EdgeDriver[NarrowStream[bytes]]):
    """Lives at `place`. `rate` is what it asks for; None leaves it to the operator. `forget` hears of a turn's end: its
    seed, and where its answer began."""

    def __init__(
        self,
        place: Place,
        verifier: RealVerifier,
        controller: Controller,
        shape: TreeShape,
        drafter: ReplayDrafter,
        rate: float | None,
        forget: Callable[[int, int], None],
    ) -> None:
        session = EdgeSession(
            fingerprint=FINGERPRINT,
            vocab_size=place.vocab,
            controller=controller,
            session_id=session_id(place.number),
            shape=shape,
        )
        super().__init__(place.agenda, session, place.token_s, hop_of(place.token_s))
        self._place = place
        self._verifier = verifier
        self._drafter = drafter
        self._rate = rate
        self._forget = forget
        self._controller = controller
        self._proposals = 0
        self._drafting_s = 0.0
        place.recorder.edges[place.number].drafting = self.drafting

    def drafting(self) -> Drafting:
        """What the drafter has done so far, and what its guesses were worth."""
        cache = self.session.branch_cache
        estimates = self._controller.estimates if isinstance(self._controller, AdaptiveController) else None
        return Drafting(
            proposals=self._proposals,
            seconds=self._drafting_s,
            surprises=cache.surprises,
            covered=cache.covered,
            shipped=cache.shipped,
            saved=cache.saved,
            judged=0 if estimates is None else estimates.observed,
            calibration_error=0.0 if estimates is None else estimates.calibration_error,
        )

    def start(self, wish: Wish) -> None:
        """See `Actor.start`."""
        ids = [*self.session.ids, *wish.prompt]
        end_ids = (end_id(self._place.vocab),)
        request = TurnRequest(seed=wish.seed, max_tokens=wish.tokens, end_ids=end_ids, target_rate=self._rate)
        self._drafter.begin(TurnContext(request.params, wish.seed, len(ids), self._place.vocab, banned=end_ids))
        self.session.start_turn(self._agenda.now, ids, request)
        if self.stream is None:
            stream = self._place.connect(bytes)
            self._verifier.accept(stream)
            self.connected(stream, stream.up, stream.down)
        self.draft()
        self.write()

    def _hear(self, event: Event) -> None:
        match event:
            case Committed():
                self._drafter.commit(event.tokens, event.start)
                self._place.told(len(event.tokens))
            case Finished():
                wish = self._place.wishes[-1]
                self._forget(wish.seed, wish.prompt_len)
                self._place.over()

    def _propose(self, path: Sequence[int], k: int) -> list[Candidate]:
        return self._drafter.propose(path, k)

    def _hand_in(self, done: int) -> None:
        if self._job is not None:
            self._proposals += done
            self._drafting_s += self._agenda.now - self._job_began
        super()._hand_in(done)


def hop_of(token_s: float) -> int:
    """Proposals that a visit of the drafting thread makes: as many as begin within HOP_S."""
    return max(1, -int(-HOP_S // token_s)) if token_s > 0 else 1 << 30
