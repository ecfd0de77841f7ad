"""What an edge session tells its owner."""

from __future__ import annotations

from dataclasses import dataclass

from acespec.proto.logprobs import TokenLogprobs
from acespec.proto.messages import FinishReason, Opened, Totals


@dataclass(frozen=True, slots=True)
class TurnOpened:
    """The server serves the turn, on these terms."""

    terms: Opened


@dataclass(frozen=True, slots=True)
class Committed:
    """Tokens that are final, at positions start, start + 1, ...; `logprobs` has one for each, if they were wanted."""

    start: int
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Reopened:
    """The turn is opened anew on the same stream; the frame goes out with the next `poll`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The turn is over. `text_end` is the UTF-8 length of the generated text that belongs to the answer, if cut."""

    reason: FinishReason
    text_end: int | None
    totals: Totals


Event = TurnOpened | Committed | Reopened | Finished
