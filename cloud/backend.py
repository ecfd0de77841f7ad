"""The boundary between the protocol and whatever computes tokens.

A backend turns a `TurnSpec` into a stream of `Committed` tokens. Drafts offered to it change how fast they come, never
what they are. The engine of this package is one backend; others may own their scheduling.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from acespec.cloud.draw_rule import Constraint
from acespec.proto.logprobs import TokenLogprobs
from acespec.proto.messages import FinishReason, Totals
from acespec.proto.nodes import Node
from acespec.proto.sampling_params import SamplingParams

SessionKey = tuple[str, bytes]
"""(principal, session id): sessions of different principals never meet."""


@dataclass(frozen=True, slots=True)
class TurnSpec:
    """All that decides a turn's output, and how fast it is wanted.

    Attributes:
        tokens: the sequence so far: prompt and, when a turn is resumed elsewhere, what it had generated.
        prompt_len: where the generated part begins.
        stop_ids: tokens that end the text; the first `min_tokens` generated tokens may be none of them.
        rate: granted tokens/s; 0 is never due.
        top_logprobs: alternatives to report for each token; None reports no log probabilities.
        constraint: a grammar for the generated part.
    """

    session: SessionKey
    tokens: tuple[int, ...]
    prompt_len: int
    params: SamplingParams
    seed: int
    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    rate: float = 0.0
    epoch: int = 0
    min_tokens: int = 0
    top_logprobs: int | None = None
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """Tokens that became final in one step, and what the step was like.

    Attributes:
        tokens: the new tokens, in order. Empty only on a final one.
        matched: (node id, position) of the deepest node of `epoch` that is known to match, or None.
        next_in_s: expected time until this turn's next step.
        load: share of the row budget that the step used, 0..1.
        logprobs: one for each token if the turn asked for them, else empty.
        fault: why the turn ends here and not where it should have, on a final one.
    """

    tokens: tuple[int, ...]
    epoch: int
    matched: tuple[int, int] | None = None
    verify_s: float = 0.0
    load: float = 0.0
    next_in_s: float = 0.0
    finish: FinishReason | None = None
    text_end: int | None = None
    totals: Totals | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """What one `Draft` frame brought: nodes, the acknowledged length, and perhaps a request for a plain step."""

    epoch: int
    first_id: int
    nodes: tuple[Node, ...]
    base: int
    received: int
    step: bool = False


class Backend(Protocol):
    """Computes turns. All methods are called on one event loop."""

    def open(self, spec: TurnSpec) -> AsyncIterator[Committed]:
        """Start the session's turn, replacing one that runs; yields until one with `finish` set.

        Raises `Exhausted` if there is no room, `ServerFault` if the model broke.
        """

    def offer(self, session: SessionKey, offer: Offer) -> None:
        """Hand over drafts and the edge's progress. Without a running turn it does nothing."""

    def attach(self, session: SessionKey, attached: bool) -> None:
        """Say whether an edge listens: a detached session is never due and takes no plain step."""

    def close(self, session: SessionKey) -> None:
        """Cancel the running turn, if any; its iterator ends with `CANCELLED`."""

    def forget(self, session: SessionKey) -> None:
        """Free all that is kept for a session that will not come back."""
