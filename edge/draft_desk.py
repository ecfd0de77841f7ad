"""Where drafters hand in their guesses: what may be drafted now, and what a guess is worth when it arrives.

Drafters work while commits come in. A job says which path to extend; its answer is fitted to whatever is committed by
then, so that neither side waits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from acespec.edge.controller import Controller
from acespec.edge.draft_tree import DraftTree
from acespec.edge.drafters.base import Candidate


@dataclass(frozen=True, slots=True)
class DraftJob:
    """What a drafter should do now: extend `path` by at most `room` tokens."""

    version: int
    path: list[int]
    room: int


class DraftDesk:
    """The unverified guesses of one session.

    Attributes:
        tree: the guesses.
        version: rises whenever a path that was given out has been contradicted.
        cap: most unverified tokens; the server's limit once it is known.
    """

    def __init__(self, controller: Controller, vocab_size: int) -> None:
        self.controller = controller
        self.tree = DraftTree()
        self.version = 0
        self.cap = controller.cap
        self._vocab_size = vocab_size
        self._end_ids: Collection[int] = ()
        self._end = 0
        self._stalled: tuple[int, int, int] | None = None

    def start(self, end: int, end_ids: Collection[int]) -> None:
        """A new turn: its sequence grows to at most `end` tokens, and an id of `end_ids` is its last."""
        self.clear()
        self._end = end
        self._end_ids = frozenset(end_ids)

    def clear(self) -> None:
        """Drop all guesses; jobs under way come to nothing."""
        self.tree.clear()
        self.version += 1
        self._end = 0

    def limit(self, most: int, committed: int) -> None:
        """The server takes at most `most` unverified tokens; what was drafted beyond is dropped."""
        self.cap = min(self.controller.cap, most)
        self.version += self.tree.cut(committed + self.cap)

    def path(self, ids: Sequence[int]) -> list[int]:
        """The committed `ids` and the draft so far."""
        return [*ids, *(node.token for node in self.tree.path())]

    def room(self, committed: int) -> int:
        """Tokens that may be drafted now behind the path, with this many committed."""
        depth = len(self.tree)
        tip = self.tree.tip
        # The last token of a turn is the target's own in any case.
        room = min(self.cap, self._end - 1 - committed) - depth
        if room <= 0 or self._key(committed) == self._stalled:
            return 0
        if tip is not None and tip.token in self._end_ids:
            return 0
        return room if self.controller.extend(depth, self.tree.survival()).go else 0

    def job(self, ids: Sequence[int]) -> DraftJob | None:
        """Work for a drafter, if there is any."""
        room = self.room(len(ids))
        return DraftJob(self.version, self.path(ids), room) if room else None

    def take(
        self, ids: Sequence[int], job: DraftJob, candidates: Sequence[Candidate], seconds: float, silent: bool
    ) -> None:
        """See `EdgeSession.drafted`."""
        self.controller.drafted(seconds, len(candidates))
        if job.version != self.version:
            return
        path = self.path(ids)
        for position, candidate in enumerate(candidates, len(job.path)):
            if position < len(path):
                if path[position] != candidate.token:
                    return
            elif not self._add(candidate, position, len(ids)):
                silent = True
                break
        if silent:
            self._stalled = self._key(len(ids))

    def committed(self, now: float, ids: Sequence[int], new: int) -> None:
        """The last `new` of `ids` are final now: drop what they pass or contradict, and learn from it."""
        outcomes, contradicted = self.tree.commit(ids)
        self.version += contradicted
        if new:
            self.controller.committed(now, new, outcomes)

    def _add(self, candidate: Candidate, position: int, committed: int) -> bool:
        if not 0 <= candidate.token < self._vocab_size:
            return False
        depth = position - committed + 1
        probability = _as_probability(candidate.probability)
        confidence = self.controller.confidence(depth, probability)
        if depth > self.cap or not self.controller.keep(depth, self.tree.survival() * confidence).go:
            return False
        self.tree.add(candidate.token, position, probability, confidence)
        return True

    def _key(self, committed: int) -> tuple[int, int, int]:
        return self.version, committed, len(self.tree)


def _as_probability(value: float) -> float:
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0
