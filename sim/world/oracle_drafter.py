"""A replayed drafter that knows the outcome of its guesses beforehand: what choosing the draft length can gain at most.

It is `ReplayDrafter` with the same guesses at the same speed, but it never makes one that will turn out wrong: where
the first guess (of a chain), or each of the k guesses (of a tree) is not the target's, it says nothing, takes no time,
and goes on when a commit has told the token. Where one of them is right it says that one alone, and is sure of it. So
each draft is as long as it will be accepted: the best D of every round, known in advance.

What it bounds is the choice of D and of what to ship, with this drafter over this link and verifier. It is no bound for
a better drafter, for other guesses, or for another way to put drafts into messages: its session ships by the rules of
the controller that it is given, and a controller that packs better can come near it, or above, where bytes are dear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acespec.edge.drafters.base import Candidate
from acespec.edge.drafters.replay import REPLAY_KINDS, SOURCE, ReplayDrafter


class OracleDrafter(ReplayDrafter):
    """Says what is right, and nothing else. It takes time for what it says only."""

    name = "oracle"

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        """See `Drafter.propose`."""
        found = self._guesses(path, k)
        return found if found and self.pace.work(self._time_of(path), self.should_stop) else []

    def _guesses(self, path: Sequence[int], k: int) -> list[Candidate]:
        turn, position = self._known_turn(), len(path)
        truth = self._text.token(turn.seed, position, turn.prompt_len)
        right = any(guess.token == truth for guess in super()._guesses(path, k))
        return [Candidate(truth, 1.0, SOURCE)] if right else []


WORLD_KINDS: Mapping[str, type[ReplayDrafter]] = REPLAY_KINDS | {OracleDrafter.name: OracleDrafter}
"""What a scenario's `drafter.kind` may be in virtual time."""
