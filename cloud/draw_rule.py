"""How one turn's tokens are drawn from rows of logits: the second half of f(prefix, position, parameters, seed).

A rule is fixed when the turn opens. Everything that depends on what came before (penalties, the tokens that may not end
the text yet, a grammar) is decided from a row's own prefix, so a row of a draft is drawn as if it were alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from acespec.proto.logprobs import TokenLogprobs, of_row
from acespec.proto.sampling import sample
from acespec.proto.sampling_params import SamplingParams


class Constraint(Protocol):
    """A grammar: which tokens may follow a generated prefix. A pure function to its callers, whatever it caches.

    Attributes:
        fault: why it could not be followed to the end, if so; it then allows the end of the text alone.
    """

    fault: str | None

    def allowed(self, generated: Sequence[int]) -> NDArray[np.bool_]:
        """bool[vocab_size]: what may come after the tokens `generated` since the prompt's end."""


@dataclass(frozen=True, slots=True)
class DrawRule:
    """Parameters of a turn.

    Attributes:
        prompt_len: where the generated part begins.
        banned: ids that end a text, which may not be drawn for the first `min_tokens` generated tokens.
        top_logprobs: alternatives to report for each token; None reports no log probabilities at all.
    """

    params: SamplingParams
    seed: int
    prompt_len: int
    banned: tuple[int, ...] = ()
    min_tokens: int = 0
    top_logprobs: int | None = None
    constraint: Constraint | None = None

    @property
    def reads_prefix(self) -> bool:
        """True if a row's tokens matter beyond their number."""
        p = self.params
        penalised = p.repetition_penalty != 1.0 or p.frequency_penalty != 0.0 or p.presence_penalty != 0.0
        return penalised or self.constraint is not None

    def draw(self, logits: NDArray[np.float32], position: int, prefix: Sequence[int], vocab_size: int) -> int:
        """The token at `position` from float32[n] logits; `prefix` may be empty unless `reads_prefix`."""
        early = position - self.prompt_len < self.min_tokens
        return sample(
            logits,
            self.params,
            self.seed,
            position,
            prefix=prefix,
            prompt_len=self.prompt_len,
            vocab_size=vocab_size,
            banned=self.banned if early else (),
            allowed=None if self.constraint is None else self.constraint.allowed(prefix[self.prompt_len :]),
        )

    def logprobs(self, logits: NDArray[np.float32], token: int, vocab_size: int) -> tuple[TokenLogprobs, ...]:
        """What is to be reported of a drawn token: one item, or none."""
        if self.top_logprobs is None:
            return ()
        return (of_row(logits, token, self.top_logprobs, vocab_size),)
