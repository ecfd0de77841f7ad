"""One forward pass over blocks: place them in their pages, run the layers, read out the wanted rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from acespec.cloud.runner import Block
from acespec.cloud.torch_backend.kv_cache import KvCache
from acespec.cloud.torch_backend.model import Model
from acespec.cloud.torch_backend.placement import Placed, place


@dataclass(frozen=True, slots=True)
class Passed:
    """What a pass leaves behind: float32[len(tokens) - sample_from, vocab_rows] for each block, and their places."""

    logits: list[torch.Tensor]
    placed: list[Placed]


def forward(model: Model, cache: KvCache, blocks: Sequence[Block]) -> Passed:
    """Run checked blocks.

    Only rows that are to be sampled pass the output head, the largest product of small models.
    """
    placed = place(cache, blocks)
    hidden = model.hidden_states(cache, placed)
    wanted = [block.sampled_rows() for block in placed]
    rows = torch.cat(wanted)
    if not len(rows):
        return Passed([hidden.new_empty(0, model.config.vocab_rows) for _ in blocks], placed)
    return Passed(list(torch.split(model.logits(hidden[rows]), [len(w) for w in wanted])), placed)
