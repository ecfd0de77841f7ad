"""What a turn asks of the target, in the precision that both ends see."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from acespec.proto.golomb import Codec
from acespec.proto.messages import Checkpoint, Open, OutputFormat, Unserved
from acespec.proto.sampling_params import SamplingParams

CODEC = Codec.GOLOMB
"""How this edge packs its drafts."""


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """Everything of an `Open` that the caller chooses.

    Attributes:
        params: how tokens are drawn; rounded to 32-bit floats, as the wire carries them (`as_sent`).
        seed: 64-bit noise key.
        max_tokens: most tokens to generate, counted from the prompt's end.
        min_tokens: the first so many tokens end nothing.
        stop_ids: ids that end the text besides the model's own.
        stop_strings: texts that end it; the cloud looks for them.
        end_ids: all ids that end the text, `stop_ids` and, unless `ignore_eos`, the model's own: nothing is drafted
            behind one of them, and no drafter that mirrors the target says one before `min_tokens`.
        target_rate: wanted tokens/s; 0 is "no hurry", None the operator's default.
        ignore_eos: the model's own end ids end nothing.
        top_logprobs: alternatives to report for each token; None reports no log probabilities at all.
        format: what the text has to look like.
        extra: controls that a verifier may refuse by name.
    """

    params: SamplingParams = SamplingParams()
    seed: int = 0
    max_tokens: int = 256
    min_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    end_ids: tuple[int, ...] = ()
    target_rate: float | None = None
    ignore_eos: bool = False
    top_logprobs: int | None = None
    format: OutputFormat = OutputFormat()
    extra: Unserved = Unserved()

    def open(
        self,
        *,
        session_id: bytes,
        epoch: int,
        fingerprint: bytes,
        prompt_len: int,
        append: bytes,
        keep: tuple[Checkpoint, ...],
        model: str,
    ) -> Open:
        """The message that starts or resumes this turn."""
        return Open(
            session_id=session_id,
            epoch=epoch,
            fingerprint=fingerprint,
            prompt_len=prompt_len,
            seed=self.seed,
            max_tokens=self.max_tokens,
            params=self.params,
            append=append,
            keep=keep,
            model=model,
            min_tokens=self.min_tokens,
            stop_ids=self.stop_ids,
            stop_strings=self.stop_strings,
            target_rate=self.target_rate,
            codec=CODEC,
            ignore_eos=self.ignore_eos,
            top_logprobs=self.top_logprobs,
            format=self.format,
            extra=self.extra,
        )


def as_sent(params: SamplingParams) -> SamplingParams:
    """`params` as they arrive: drafters must mirror the values that the cloud computes with."""
    return replace(
        params,
        temperature=_single(params.temperature),
        top_p=_single(params.top_p),
        min_p=_single(params.min_p),
        repetition_penalty=_single(params.repetition_penalty),
        frequency_penalty=_single(params.frequency_penalty),
        presence_penalty=_single(params.presence_penalty),
        logit_bias=tuple((token, _single(bias)) for token, bias in params.logit_bias),
    )


def _single(value: float) -> float:
    return float(np.float32(value))
