"""The text side of a turn: ids in as they are committed, showable text out, and a look at what may follow."""

from __future__ import annotations

import time
from collections.abc import Sequence

from acespec.edge.completion import TextDelta
from acespec.edge.events import Committed, Finished
from acespec.edge.stop_text import StopText
from acespec.edge.turn_request import TurnRequest
from acespec.edge.wire_stats import WireTotals
from acespec.models.text_stream import TextStream
from acespec.models.tokenizer import Tokenizer
from acespec.proto.logprobs import TokenLogprobs


class TurnText:
    """What one turn has yielded.

    Attributes:
        started: when it was asked for; `first_at` when the first commit was taken, with `first_tokens`.
        wire_before: what the session's wire had carried before it.
    """

    def __init__(self, tokenizer: Tokenizer, request: TurnRequest, now: float, wire_before: WireTotals) -> None:
        self.started = now
        self.first_at: float | None = None
        self.first_tokens = 0
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.pieces: list[str] = []
        self.wire_before = wire_before
        self._request = request
        self._text = TextStream(tokenizer)
        self._stop = StopText(request.stop_strings)

    def committed(self, event: Committed) -> TextDelta:
        """The text that these tokens make showable."""
        if self.first_at is None:
            self.first_at = time.monotonic()
            self.first_tokens = len(event.tokens)
        early = self._early
        self.token_ids += event.tokens
        self.logprobs += event.logprobs
        text = self._stop.push(self._text.push(event.tokens[:early]), may_end=False) if early else ""
        text += self._stop.push(self._text.push(event.tokens[early:]))
        return self._delta(text, event.tokens, event.logprobs)

    def finished(self, event: Finished) -> TextDelta:
        """The rest, cut where the cloud says that the answer ends."""
        return self._delta(self._stop.finish(self._text.flush(), event.text_end))

    def to_end(self, ids: Sequence[int]) -> Sequence[int]:
        """Those of `ids` that may follow what was yielded: nothing follows an end id."""
        return ids[: self._end_of(ids) + 1]

    def behind(self, ids: Sequence[int]) -> str:
        """What would be shown next if `ids` were committed and the answer went on: held text, and theirs."""
        early, ids = self._early, ids[: self._end_of(ids)]
        return self._stop.peek(self._text.peek(ids), len(self._text.peek(ids[:early])) if early else None)

    def _end_of(self, ids: Sequence[int]) -> int:
        """Where the first end id stands; else how many there are."""
        ends = (at for at, token in enumerate(ids) if at >= self._early and token in self._request.end_ids)
        return next(ends, len(ids))

    @property
    def _early(self) -> int:
        """How many more tokens end nothing."""
        return max(0, self._request.min_tokens - len(self.token_ids))

    def _delta(self, text: str, tokens: tuple[int, ...] = (), logprobs: tuple[TokenLogprobs, ...] = ()) -> TextDelta:
        self.pieces.append(text)
        return TextDelta(text, tokens, logprobs)
