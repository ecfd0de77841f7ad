"""One pass through the model as a sequence of kernels over fixed buffers: what a CUDA graph records."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from acespec.cloud.cuda_backend.kv_pool import KvPool
from acespec.cloud.cuda_backend.weights import Layer, Weights
from acespec.cloud.cuda_backend.workspace import Inputs, Workspace
from acespec.cloud.runner import PAGE
from acespec.kernels.accept import accept
from acespec.kernels.add_norm import add_norm, norm_rows
from acespec.kernels.attention import attend
from acespec.kernels.attention_combine import combine
from acespec.kernels.draw_rows import draw_rows
from acespec.kernels.embed import embed
from acespec.kernels.lm_head import head_argmax
from acespec.kernels.rope_kv import rope_kv
from acespec.kernels.silu_mul import silu_mul


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything that a pass reads and writes.

    Attributes:
        wide: whether many rows may use the wide tiles, which then give the same bits as the narrow ones.
    """

    weights: Weights
    pool: KvPool
    inputs: Inputs
    space: Workspace
    vocab_size: int
    wide: bool

    def run(self, rows: int, sampled: int) -> None:
        """Run `rows` rows and draw from `sampled` of them; both are bucket sizes, padded rows included."""
        embed(self.inputs.on_device["tokens"][:rows], self.weights.embedding, self.space.residual[:rows])
        partials: torch.Tensor | None = None
        for number, layer in enumerate(self.weights.layers):
            partials = self._attention(layer, number, rows, partials)
            partials = self._mlp(layer, rows, partials)
        if sampled:
            self._draw(rows, sampled, partials)

    def _attention(self, layer: Layer, number: int, rows: int, partials: torch.Tensor | None) -> torch.Tensor:
        config, space, given = self.weights.config, self.space, self.inputs.on_device
        queries = space.queries[:rows]
        keys, values = self.pool.keys[number], self.pool.values[number]
        work = self.inputs.attention(rows)
        normed = self._normed(rows, partials, layer.input_norm)
        rope_kv(
            layer.qkv(normed, space.spaces[0], wide=self.wide),
            layer.qkv_bias,
            layer.q_norm,
            layer.k_norm,
            config.norm_eps,
            self.weights.cos,
            self.weights.sin,
            given["positions"][:rows],
            given["slots"][:rows],
            queries,
            keys,
            values,
        )
        attend(queries, keys, values, work, 1 / math.sqrt(config.head_dim), PAGE, space.parts, space.stats)
        combine(space.parts, space.stats, work, space.mixed[:rows])
        return layer.attention_out(space.mixed[:rows], space.spaces[1], wide=self.wide)

    def _mlp(self, layer: Layer, rows: int, partials: torch.Tensor) -> torch.Tensor:
        space = self.space
        normed = self._normed(rows, partials, layer.post_norm)
        silu_mul(layer.gate_up(normed, space.spaces[0], wide=self.wide), space.active[:rows])
        return layer.down(space.active[:rows], space.spaces[1], wide=self.wide)

    def _normed(self, rows: int, partials: torch.Tensor | None, weight: torch.Tensor) -> torch.Tensor:
        out = self.space.normed[:rows]
        add_norm(self.space.residual[:rows], partials, weight, self.weights.config.norm_eps, out)
        return out

    def _draw(self, rows: int, sampled: int, partials: torch.Tensor | None) -> None:
        weights, space, given = self.weights, self.space, self.inputs.on_device
        final = space.normed[:sampled]
        eps = weights.config.norm_eps
        norm_rows(space.residual[:rows], partials, given["gather"][:sampled], weights.final_norm, eps, final)
        params, ids = self.inputs.params(sampled), space.ids[:sampled]
        head_argmax(
            final,
            weights.head,
            self.vocab_size,
            params,
            given["keep"][:sampled],
            space.tile_scores[:sampled],
            space.tile_ids[:sampled],
            space.logits,
            ids,
            weights.head_tile(sampled, wide=self.wide),
        )
        kept = min(sampled, len(space.logits))
        draw_rows(space.logits[:kept], given["which"][:kept], params, self.vocab_size, space.draw, ids)
        accept(
            given["walks"][:rows],
            given["parents"],
            given["drafts"],
            ids,
            space.out_tokens[:rows],
            space.out_rows[:rows],
            space.counts[:rows],
        )
