"""A turn's request from what a caller cares about; the rest follows from the target's tokenizer."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from acespec.edge.run_options import SEED_BITS
from acespec.edge.turn_request import TurnRequest, as_sent
from acespec.proto.errors import UsageError
from acespec.proto.messages import OutputFormat
from acespec.proto.sampling_params import SamplingParams

if TYPE_CHECKING:
    from acespec.models.tokenizer import Tokenizer


def request_for(
    tokenizer: Tokenizer,
    params: SamplingParams | None = None,
    *,
    seed: int | None = None,
    max_tokens: int = 256,
    min_tokens: int = 0,
    stop: Sequence[str] = (),
    ignore_eos: bool = False,
    target_rate: float | None = None,
    top_logprobs: int | None = None,
    format: OutputFormat | None = None,
) -> TurnRequest:
    """A request for `Client.stream`; see `TurnRequest` for what is not named here.

    Args:
        params: how tokens are drawn; default: greedy.
        seed: the same one gives the same text again; default: a random one.
        stop: texts that end the answer.

    Raises:
        UsageError: `min_tokens` is above `max_tokens`.
    """
    if min_tokens > max_tokens:
        raise UsageError(f"min_tokens {min_tokens} is above max_tokens {max_tokens}")
    return TurnRequest(
        params=as_sent(params or SamplingParams()),
        seed=secrets.randbits(SEED_BITS) if seed is None else seed,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop_strings=tuple(stop),
        end_ids=() if ignore_eos else tokenizer.eos_ids,
        target_rate=target_rate,
        ignore_eos=ignore_eos,
        top_logprobs=top_logprobs,
        format=format or OutputFormat(),
    )
