"""The device buffers that all passes share: made once, because CUDA graphs remember addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from acespec.cloud.cuda_backend.arena import Arena, Rows
from acespec.cloud.cuda_backend.layout import PassLayout
from acespec.cloud.cuda_backend.limits import PassLimits
from acespec.cloud.cuda_backend.weights import Weights
from acespec.cloud.draw_rule import DrawRule
from acespec.kernels.attention import AttentionWork
from acespec.kernels.attention_plan import AttentionPlan
from acespec.kernels.draw_rows import draw_scratch
from acespec.kernels.row_params import RowParams, row_params
from acespec.proto.sampling_params import SamplingParams

RESTING = DrawRule(SamplingParams(), 0, 0)
"""How padded rows are drawn."""
TILE_FIELDS = 8
ITEM_FIELDS = 4


class Inputs:
    """What the host tells the device about a pass."""

    def __init__(self, limits: PassLimits, device: torch.device) -> None:
        self._arena = Arena(_empty(limits), device)
        self.on_device = self._arena.device
        self._items = Rows(limits.parts, ITEM_FIELDS, device)
        self._tiles = Rows(2 * limits.rows, TILE_FIELDS, device)
        self._tables = Rows(limits.rows, limits.pages, device)
        self._tails = Rows(limits.rows, limits.tail, device)

    def send(self, layout: PassLayout, plan: AttentionPlan) -> None:
        """Bring one pass to the device."""
        arena = self._arena
        arena.rest()
        for name in ("tokens", "positions", "slots", "gather", "keep", "which", "walks", "parents", "drafts"):
            arena.put(name, getattr(layout, name))
        for name, values in row_params(layout.rules).items():
            arena.put(name, values)
        arena.put("row_base", plan.row_base)
        arena.put("row_parts", plan.row_parts)
        arena.put("n_items", np.array([len(plan.items)], np.int32))
        arena.send()
        self._items.send(plan.items)
        self._tiles.send(plan.tiles)
        self._tables.send(plan.tables)
        self._tails.send(plan.tails)

    def rest(self) -> None:
        """A pass in which there is nothing to do."""
        self._arena.rest()
        self._arena.send()

    def attention(self, rows: int) -> AttentionWork:
        """The work of a pass of `rows` rows."""
        on_device = self.on_device
        return AttentionWork(
            items=self._items.device,
            n_items=on_device["n_items"],
            tiles=self._tiles.device,
            tables=self._tables.device,
            tails=self._tails.device,
            positions=on_device["positions"][:rows],
            row_base=on_device["row_base"][:rows],
            row_parts=on_device["row_parts"][:rows],
        )

    def params(self, sampled: int) -> RowParams:
        """Sampling parameters of the first `sampled` sampled rows."""
        names = ("temperature", "seeds", "draw_at", "top_k", "top_p", "min_p_log")
        return RowParams(*(self.on_device[name][:sampled] for name in names))


class Workspace:
    """Activations, scratch and results."""

    def __init__(self, weights: Weights, limits: PassLimits, device: torch.device) -> None:
        config, rows = weights.config, limits.rows
        heads, width = config.heads, config.head_dim

        def f32(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.float32, device=device)

        def bf16(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.bfloat16, device=device)

        def i32(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        # Two spaces for partial sums: a consumer of one fills the other.
        numbers = max(product.numbers(rows) for product in weights.layers[0].products)
        self.spaces = f32(numbers), f32(numbers)
        self.residual, self.normed = f32(rows, config.hidden), bf16(rows, config.hidden)
        self.queries, self.mixed = bf16(rows, heads, width), bf16(rows, heads * width)
        self.active = bf16(rows, config.ffn)
        self.parts, self.stats = f32(limits.parts, heads, width), f32(limits.parts, heads, 2)
        self.logits = f32(limits.kept, config.vocab_rows)
        self.draw = draw_scratch(limits.kept, config.vocab_rows, device)
        tiles = max(-(-config.vocab_rows // weights.head_tile(rows, wide=wide).block_n) for wide in (False, True))
        self.tile_scores, self.tile_ids = f32(rows, tiles), i32(rows, tiles)
        self.ids = i32(rows)
        self.out_tokens, self.out_rows, self.counts = i32(rows, limits.tail), i32(rows, limits.tail), i32(rows)


def _empty(limits: PassLimits) -> dict[str, NDArray[Any]]:
    rows = limits.rows

    def full(value: int, *shape: int) -> NDArray[np.int32]:
        return np.full(shape, value, np.int32)

    return {
        "tokens": full(0, rows),
        "positions": full(0, rows),
        "slots": full(-1, rows),
        "gather": full(-1, rows),
        "keep": full(-1, rows),
        "which": full(-1, limits.kept),
        "row_base": full(0, rows),
        "row_parts": full(0, rows),
        "n_items": full(0, 1),
        "walks": full(0, rows, 4),
        "parents": full(-1, rows),
        "drafts": full(0, rows),
        **row_params([(RESTING, 0)] * rows),
    }
