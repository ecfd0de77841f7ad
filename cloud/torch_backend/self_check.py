"""Does this machine, with this model and thread count, keep the promise? Tried at every start, in about a second.

The same text is run in several ways: in one block, token by token, with others in the step, over a slot full of
rejected drafts. All must give the same logits, bit for bit. The bits themselves are returned too: they go into
the name of the numerics, so that two machines whose libraries add up in different orders get different names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from acespec.cloud.runner import Block
from acespec.cloud.torch_backend.kv_cache import TILE, KvCache
from acespec.cloud.torch_backend.model import Model
from acespec.cloud.torch_backend.passes import forward
from acespec.proto.sampling_params import SamplingParams

WINDOW = 5
"""Rows that are compared: the last before a tile edge and the first after it."""

Probe = Callable[[Model, KvCache, int, list[int], int], torch.Tensor]
"""(model, cache, slot that holds the text up to the window, text, start of the window) -> the window's logits."""


def probe_bits(model: Model, cache: KvCache, vocab_size: int) -> tuple[bytes, str | None]:
    """(logits of the probe text's last rows, what differed or None if nothing did)."""
    length = min(TILE + 2, cache.max_length)
    tokens = [(7 + 31 * n) % vocab_size for n in range(length)]
    start = length - min(WINDOW, length - 1)
    with cache.lent() as whole:
        (expected,) = forward(model, cache, [_block(whole, 0, tokens, start)])
    wrong = []
    with cache.lent() as slot:
        forward(model, cache, [_block(slot, 0, tokens[:start], start)])
        for name, probe in PROBES.items():
            if not torch.equal(probe(model, cache, slot, tokens, start), expected):
                wrong.append(name)
    return expected.numpy().tobytes(), ", ".join(wrong) or None


def _one_at_a_time(model: Model, cache: KvCache, slot: int, tokens: list[int], start: int) -> torch.Tensor:
    rows = [forward(model, cache, [_block(slot, n, tokens[n : n + 1])])[0] for n in range(start, len(tokens))]
    return torch.cat(rows)


def _in_company(model: Model, cache: KvCache, slot: int, tokens: list[int], start: int) -> torch.Tensor:
    """The window between two other sessions, at other positions and with other tokens."""
    with cache.lent() as before, cache.lent() as after:
        own = _block(slot, start, tokens[start:])
        return forward(model, cache, [_block(before, 0, tokens[:2]), own, _block(after, 0, tokens[:1])])[1]


def _after_rejection(model: Model, cache: KvCache, slot: int, tokens: list[int], start: int) -> torch.Tensor:
    """Wrong tokens first, then the window in two unequal parts."""
    forward(model, cache, [_block(slot, start, tokens[: len(tokens) - start])])
    cut = start + 2
    (first,) = forward(model, cache, [_block(slot, start, tokens[start:cut])])
    (rest,) = forward(model, cache, [_block(slot, cut, tokens[cut:])])
    return torch.cat((first, rest))


PROBES: dict[str, Probe] = {
    "one token at a time": _one_at_a_time,
    "with other sessions in the step": _in_company,
    "after rejected drafts": _after_rejection,
}


def _block(slot: int, start: int, tokens: Sequence[int], sample_from: int = 0) -> Block:
    return Block(slot, start, tuple(tokens), (), sample_from, SamplingParams(), 0, 0)
