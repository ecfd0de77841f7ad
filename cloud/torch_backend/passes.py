"""One forward pass over blocks: place them in their slots, run the layers, read out the wanted rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from acespec.cloud.runner import Block
from acespec.cloud.torch_backend.attention import Span
from acespec.cloud.torch_backend.kv_cache import KvCache
from acespec.cloud.torch_backend.model import Model


def forward(model: Model, cache: KvCache, blocks: Sequence[Block]) -> list[torch.Tensor]:
    """Run checked blocks; float32[len(tokens) - sample_from, vocab_rows] of logits for each.

    Only rows that are to be sampled pass the output head, the largest product of small models.
    """
    spans = _placed(cache, blocks)
    hidden = model.hidden_states([token for block in blocks for token in block.tokens], spans)
    wanted = [
        torch.arange(span.first + block.sample_from, span.first + span.rows)
        for span, block in zip(spans, blocks, strict=True)
    ]
    rows = torch.cat(wanted)
    if not len(rows):
        return [hidden.new_empty(0, model.config.vocab_rows) for _ in blocks]
    return list(torch.split(model.logits(hidden[rows]), [len(w) for w in wanted]))


def _placed(cache: KvCache, blocks: Sequence[Block]) -> list[Span]:
    spans: list[Span] = []
    first = 0
    for block in blocks:
        slot = cache.make_room(block.slot, block.start, block.end)
        spans.append(Span(first, len(block.tokens), block.start, slot))
        first += len(block.tokens)
    return spans
