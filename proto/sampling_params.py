"""Sampling parameters of a request: one frozen value that both ends share."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is drawn from a row of logits (names and meanings as in OpenAI's and vLLM's APIs).

    Attributes:
        temperature: 0 is argmax without noise; otherwise logits are divided by it.
        top_k: keep the k best tokens; 0 keeps all.
        top_p: keep the smallest best-first set whose probability reaches it; 1 keeps all.
        min_p: keep tokens with at least this share of the best token's probability; 0 keeps all.
        repetition_penalty: divides positive, multiplies negative logits of tokens seen so far; 1 is off.
        frequency_penalty: subtracted once per earlier occurrence in the generated part; 0 is off.
        presence_penalty: subtracted once if the token occurs in the generated part; 0 is off.
        logit_bias: (token id, added logit) pairs.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = field(default=())

    @property
    def greedy(self) -> bool:
        """True if the sample is a plain argmax."""
        return self.temperature == 0.0
