"""A session whose tree is kept full: how the cost of the brain grows with the size of the tree, all else being equal.

A cloud that is all script commits the target's tokens at a steady pace, a drafter that knows the target answers each
job at once, and every frame that the session has is taken. Nothing decides what is drafted but the size of the tree:
the controller drafts whatever there is room for, the likeliest place first.
"""

from __future__ import annotations

from acespec.edge.brain.controller import FixedController
from acespec.edge.brain.hop import hop
from acespec.edge.brain.tree_shape import TREE
from acespec.edge.drafters.base import TurnContext
from acespec.edge.drafters.replay import ReplayDrafter, Untimed
from acespec.edge.drafters.replay_accuracy import DepthAccuracy
from acespec.edge.session import EdgeSession
from acespec.edge.turn_request import TurnRequest
from acespec.proto import wire
from acespec.proto.digest import PrefixDigest, short
from acespec.proto.messages import Commit, Opened
from acespec.proto.replay_text import SyntheticText, end_id
from acespec.proto.tokens import pack_tokens

VOCAB = 151_936
PROMPT = tuple(range(300, 332))
ACCEPTANCE = 0.8
SEED = 7
TOKENS_A_STEP = 3
VISITS_A_STEP = 12
"""Of the drafter between two commits, each good for one level of guesses."""
VISIT_S = 0.004


class SteadyTree:
    """One session and its surroundings.

    Attributes:
        session: the edge's.
    """

    def __init__(self, nodes: int) -> None:
        depth = max(1, nodes // TREE.width)
        self.session = EdgeSession(
            fingerprint=bytes(16), vocab_size=VOCAB, controller=FixedController(depth), session_id=bytes(16), shape=TREE
        )
        self._text = SyntheticText(VOCAB)
        self._drafter = ReplayDrafter(self._text, DepthAccuracy((ACCEPTANCE,)), 0.0, Untimed())
        self._ids = list(PROMPT)
        self._digest = PrefixDigest(PROMPT)
        self._frames = 0
        self._now = 0.0
        self._terms = Opened(1, 0, "scripted", 0.0, depth, nodes, exact=True)

    def begin(self, tokens: int) -> None:
        """Open a turn of at most `tokens`."""
        request = TurnRequest(seed=SEED, max_tokens=tokens, end_ids=(end_id(VOCAB),))
        self._drafter.begin(TurnContext(request.params, SEED, len(PROMPT), VOCAB))
        self.session.start_turn(self._now, list(PROMPT), request)
        self.session.poll(self._now)
        self.session.receive(self._now, wire.encode_cloud(self._terms))

    def commit(self) -> None:
        """A commit of TOKENS_A_STEP arrives."""
        self._receive(TOKENS_A_STEP)
        self._write()

    def fill(self) -> None:
        """Draft until VISITS_A_STEP more visits will make the tree full, or nothing is left to draft. What is shipped
        meanwhile is acknowledged."""
        while self.session.nodes < self._terms.max_nodes - VISITS_A_STEP * TREE.width and self._visit():
            self._write()
        self._receive(0)
        self._write()

    def draft(self) -> None:
        """The drafter works between two commits."""
        for _ in range(VISITS_A_STEP):
            self._visit()
            self._write()

    def _receive(self, tokens: int) -> None:
        self._now += VISIT_S
        start = len(self._ids)
        new = [self._text.token(SEED, start + n, len(PROMPT)) for n in range(tokens)]
        self._ids += new
        self._digest.extend(new)
        digest = short(self._digest.at(len(self._ids)))
        self.session.receive(
            self._now, wire.encode_cloud(Commit(len(self._ids), digest, pack_tokens(new, VOCAB), ack=self._frames))
        )
        self._drafter.commit(new, start)

    def _visit(self) -> bool:
        self._now += VISIT_S
        job = self.session.draft_job()
        if job is None:
            return False
        levels, silent = hop(job, self._drafter.propose, lambda done: done < 1)
        self.session.is_void(job)
        self.session.drafted(job, levels, seconds=VISIT_S, silent=silent)
        return True

    def _write(self) -> None:
        while self.session.poll(self._now) is not None:
            self._frames += 1
        self.session.wake_at()
