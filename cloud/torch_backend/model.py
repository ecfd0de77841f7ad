"""The decoder of Llama, Qwen2 and Qwen3 (pre-norm, grouped-query attention, gated MLP), over rows of many sessions.

All rows of a step go through each layer together; only attention looks at whose they are. Projections that share
their input are one product: q, k, v and gate, up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from acespec.cloud.torch_backend.config import ModelConfig
from acespec.cloud.torch_backend.elementwise import bounded, gated_silu, rms_norm
from acespec.cloud.torch_backend.huge_pages import use_huge_pages
from acespec.cloud.torch_backend.kv_cache import KvCache
from acespec.cloud.torch_backend.linear import Linear, RowRules
from acespec.cloud.torch_backend.placement import Placed
from acespec.cloud.torch_backend.rope import RopeTable, rotate
from acespec.cloud.torch_backend.weights import Checkpoint


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one decoder layer. `q_norm` and `k_norm` exist in Qwen3 only."""

    input_norm: torch.Tensor
    qkv: Linear
    attention_out: Linear
    post_norm: torch.Tensor
    gate_up: Linear
    down: Linear
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Step:
    """What all layers of one forward pass share."""

    cache: KvCache
    blocks: list[Placed]
    cos: torch.Tensor
    sin: torch.Tensor


class Model:
    """A loaded target. `hidden_states` fills the KV pages; `logits` reads out chosen rows."""

    def __init__(self, config: ModelConfig, checkpoint: Checkpoint, max_length: int) -> None:
        """Raises `UnsupportedModel` if the checkpoint does not fit the config."""
        self.config = config
        self.rules = RowRules()
        self._rope = RopeTable(config, max_length)
        self._embedding = checkpoint.tensor("model.embed_tokens.weight", config.vocab_rows, config.hidden)
        self._layers = [load_layer(config, checkpoint, n, self.rules) for n in range(config.layers)]
        self._final_norm = checkpoint.tensor("model.norm.weight", config.hidden)
        self._head = self.rules.linear(self._head_weight(checkpoint))
        use_huge_pages(self.rules.regions)

    def hidden_states(self, cache: KvCache, blocks: list[Placed]) -> torch.Tensor:
        """float32[rows, hidden] of the last layer; keys and values of all rows are stored in the blocks' pages."""
        tokens = [token for block in blocks for token in block.tokens]
        positions = [position for block in blocks for position in block.positions]
        step = Step(cache, blocks, *self._rope.at(torch.tensor(positions)))
        x = self._embedding[torch.tensor(tokens)]
        for number, layer in enumerate(self._layers):
            x = x + self._attention(layer, number, x, step)
            x = x + self._mlp(layer, x)
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32[rows, vocab_rows] for rows of `hidden_states`."""
        return self._head(rms_norm(hidden, self._final_norm, self.config.norm_eps))

    def _attention(self, layer: Layer, number: int, x: torch.Tensor, step: Step) -> torch.Tensor:
        config = self.config
        rows, turned = len(x), config.heads + config.kv_heads
        qkv = bounded(layer.qkv(rms_norm(x, layer.input_norm, config.norm_eps)))
        qkv = qkv.view(rows, -1, config.head_dim)
        qk = rotate(self._normed_heads(layer, qkv[:, :turned]), step.cos, step.sin)
        keys, values = qk[:, config.heads :], qkv[:, turned:]
        queries = qk[:, : config.heads].view(rows, config.kv_heads, config.group, config.head_dim)
        mixed = torch.empty(rows, config.kv_heads, config.group, config.head_dim)
        kv = step.cache.layers[number]
        for block in step.blocks:
            block.mix(kv, keys, values, queries, mixed)
        return layer.attention_out(mixed.view(rows, -1))

    def _normed_heads(self, layer: Layer, qk: torch.Tensor) -> torch.Tensor:
        """Qwen3 normalises each query and key head; the others do not."""
        if layer.q_norm is None or layer.k_norm is None:
            return qk
        config = self.config
        normed = [
            rms_norm(heads.reshape(-1, config.head_dim), weight, config.norm_eps).view(heads.shape)
            for heads, weight in (
                (qk[:, : config.heads], layer.q_norm),
                (qk[:, config.heads :], layer.k_norm),
            )
        ]
        return torch.cat(normed, 1)

    def _mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        return layer.down(gated_silu(layer.gate_up(rms_norm(x, layer.post_norm, self.config.norm_eps))))

    def _head_weight(self, checkpoint: Checkpoint) -> torch.Tensor:
        if self.config.tied:
            return self._embedding
        return checkpoint.tensor("lm_head.weight", self.config.vocab_rows, self.config.hidden)


def load_layer(config: ModelConfig, checkpoint: Checkpoint, number: int, rules: RowRules) -> Layer:
    """Read layer `number`, fusing the projections that share an input."""
    at = f"model.layers.{number}."
    hidden, ffn, width = config.hidden, config.ffn, config.head_dim
    q, kv = config.heads * width, config.kv_heads * width

    def fused(inputs: int, **parts: int) -> Linear:
        names = [(at + name.replace("__", "."), rows) for name, rows in parts.items()]
        weight = torch.cat([checkpoint.tensor(f"{name}.weight", rows, inputs) for name, rows in names])
        biases = [(checkpoint.optional(f"{name}.bias", rows), rows) for name, rows in names]
        if all(bias is None for bias, _ in biases):
            return rules.linear(weight)
        return rules.linear(weight, torch.cat([torch.zeros(rows) if bias is None else bias for bias, rows in biases]))

    return Layer(
        input_norm=checkpoint.tensor(at + "input_layernorm.weight", hidden),
        qkv=fused(hidden, self_attn__q_proj=q, self_attn__k_proj=kv, self_attn__v_proj=kv),
        attention_out=fused(q, self_attn__o_proj=hidden),
        post_norm=checkpoint.tensor(at + "post_attention_layernorm.weight", hidden),
        gate_up=fused(hidden, mlp__gate_proj=ffn, mlp__up_proj=ffn),
        down=fused(ffn, mlp__down_proj=hidden),
        q_norm=checkpoint.tensor(at + "self_attn.q_norm.weight", width) if config.qk_norm else None,
        k_norm=checkpoint.tensor(at + "self_attn.k_norm.weight", width) if config.qk_norm else None,
    )
