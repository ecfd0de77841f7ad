"""Log probabilities of emitted tokens: of the target's own distribution, before penalties, bias and filters.

They are a function of one row of logits, so neither drafts nor company change them. On the wire a token costs 4 bytes
for its own, 1 that counts the alternatives, and 8 for each of those.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acespec.proto import filters
from acespec.proto.errors import BadFrame

MAX_TOP = 20
"""Alternatives that can be asked for, as in OpenAI's API."""

_HEAD = struct.Struct("<fB")
_ITEM = struct.Struct("<If")


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """An emitted token's log probability, and the likeliest tokens at its position, best first."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def of_row(logits: NDArray[np.float32], token: int, top: int, vocab_size: int) -> TokenLogprobs:
    """Log-softmax of float32[n] `logits`, entries at or beyond `vocab_size` left out, read at `token` and the best."""
    row = logits[:vocab_size].astype(np.float64)
    np.nan_to_num(row, copy=False, nan=-np.inf, posinf=1e30, neginf=-np.inf)
    if row.max() > -np.inf:
        row -= row.max()
        row -= np.log(np.exp(row).sum())
    rounded = row.astype(np.float32)
    best = filters.best_first(rounded, min(top, rounded.size))[:top] if top else ()
    return TokenLogprobs(float(rounded[token]), tuple((int(i), float(rounded[i])) for i in best))


def pack(items: Sequence[TokenLogprobs]) -> bytes:
    """Bytes of consecutive tokens' log probabilities."""
    parts = []
    for item in items:
        parts.append(_HEAD.pack(item.logprob, len(item.top)))
        parts += [_ITEM.pack(token, logprob) for token, logprob in item.top]
    return b"".join(parts)


def unpack(data: bytes) -> list[TokenLogprobs]:
    """What `pack` made. Raises BadFrame for anything else."""
    items: list[TokenLogprobs] = []
    at = 0
    try:
        while at < len(data):
            logprob, count = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            top = tuple(_ITEM.unpack_from(data, at + n * _ITEM.size) for n in range(count))
            at += count * _ITEM.size
            items.append(TokenLogprobs(logprob, top))
    except struct.error as error:
        raise BadFrame(f"log probabilities that end in the middle ({error})") from error
    return items
