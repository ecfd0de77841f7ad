"""Stop-and-wait on our own edge: draft D tokens, send them in one message, wait for the verdict.

Needs nothing new of the edge. A controller of fixed length drafts no further until a commit comes, and a drafter that
takes its time on the last of D tokens hands all D in at once, as a block drafter would.
"""

from __future__ import annotations

from collections.abc import Sequence

from acespec.edge.drafters.replay import ReplayDrafter
from acespec.edge.drafters.replay_accuracy import Accuracy
from acespec.proto.replay_text import ReplayText


class BlockReplayDrafter(ReplayDrafter):
    """The first `length` - 1 tokens behind the committed ones take no time, and the last one all of it."""

    name = "replay-block"

    def __init__(self, text: ReplayText, accuracy: Accuracy, token_s: float, length: int) -> None:
        super().__init__(text, accuracy, token_s)
        self._length = length

    def _time_of(self, path: Sequence[int]) -> float:
        last = len(path) - self._committed + 1 == self._length
        return self._length * self._token_s if last else 0.0
