"""A checkpoint on the device: bf16 or packed 4-bit products, fp32 norms and biases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from acespec.cloud.cuda_backend.product import Product
from acespec.cloud.torch_backend.config import ModelConfig
from acespec.cloud.torch_backend.quantized import Quantized
from acespec.cloud.torch_backend.rope import RopeTable
from acespec.cloud.torch_backend.weights import Checkpoint
from acespec.kernels.tiles import GemmTile, gemm_tile
from acespec.kernels.w4_weight import W4Weight, fits, pack_w4
from acespec.proto.errors import UnsupportedModel

WITHOUT_BIAS = ("self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one decoder layer. Only Qwen2 has a bias, only Qwen3 has `q_norm` and `k_norm`."""

    input_norm: torch.Tensor
    qkv: Product
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    attention_out: Product
    post_norm: torch.Tensor
    gate_up: Product
    down: Product

    @property
    def products(self) -> tuple[Product, Product, Product, Product]:
        """In the order in which they are used."""
        return self.qkv, self.attention_out, self.gate_up, self.down


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights.

    Attributes:
        cos, sin: float32[positions, head_dim / 2].
        embedding, head: bf16[vocab_rows, hidden]; one tensor if they are tied.
    """

    config: ModelConfig
    embedding: torch.Tensor
    layers: list[Layer]
    final_norm: torch.Tensor
    head: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor

    @property
    def products(self) -> Iterator[Product]:
        """All products of all layers."""
        return (product for layer in self.layers for product in layer.products)

    def head_tile(self, rows: int, *, wide: bool) -> GemmTile:
        """The tile of the output head. It is never split: a token's score must be whole before noise is added."""
        narrow = gemm_tile(self.config.vocab_rows, self.config.hidden)
        tile = gemm_tile(self.config.vocab_rows, self.config.hidden, wide=wide and rows > narrow.block_rows)
        return replace(tile, splits=1)

    def step_bytes(self) -> int:
        """Bytes of weights that a step streams: every product and the head, once."""
        return sum(product.nbytes() for product in self.products) + self.head.nbytes


def load_weights(config: ModelConfig, checkpoint: Checkpoint, max_length: int, device: torch.device) -> Weights:
    """Read a checkpoint onto `device`, one layer at a time. Raises `UnsupportedModel` if it does not fit the config."""
    source = _Source(config, checkpoint, device)
    shape = (config.vocab_rows, config.hidden)
    embedding = source.matrix("model.embed_tokens.weight", *shape)
    rope = RopeTable(config, max_length)
    return Weights(
        config,
        embedding,
        [source.layer(number) for number in range(config.layers)],
        source.vector("model.norm.weight", config.hidden),
        embedding if config.tied else source.matrix("lm_head.weight", *shape),
        *(table.to(device) for table in rope.halves()),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    config: ModelConfig
    checkpoint: Checkpoint
    device: torch.device

    def layer(self, number: int) -> Layer:
        config, at = self.config, f"model.layers.{number}."
        q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
        for name in WITHOUT_BIAS:
            self._refuse_bias(at + name)
        heads = {"self_attn.q_proj": q, "self_attn.k_proj": kv, "self_attn.v_proj": kv}
        return Layer(
            input_norm=self.vector(at + "input_layernorm.weight", config.hidden),
            qkv=self._product(at, config.hidden, heads),
            qkv_bias=self._bias(at, heads),
            q_norm=self._head_norm(at + "self_attn.q_norm.weight"),
            k_norm=self._head_norm(at + "self_attn.k_norm.weight"),
            attention_out=self._product(at, q, {"self_attn.o_proj": config.hidden}),
            post_norm=self.vector(at + "post_attention_layernorm.weight", config.hidden),
            gate_up=self._product(at, config.hidden, {"mlp.gate_proj": config.ffn, "mlp.up_proj": config.ffn}),
            down=self._product(at, config.ffn, {"mlp.down_proj": config.hidden}),
        )

    def matrix(self, name: str, *shape: int) -> torch.Tensor:
        return self.checkpoint.tensor(name, *shape, dtype=torch.bfloat16).to(self.device)

    def vector(self, name: str, width: int) -> torch.Tensor:
        return self.checkpoint.tensor(name, width).to(self.device)

    def _head_norm(self, name: str) -> torch.Tensor | None:
        return self.vector(name, self.config.head_dim) if self.config.qk_norm else None

    def _bias(self, at: str, parts: dict[str, int]) -> torch.Tensor | None:
        found = [self.checkpoint.optional(f"{at}{name}.bias", rows) for name, rows in parts.items()]
        if all(bias is None for bias in found):
            return None
        zeros = (torch.zeros(rows) for rows in parts.values())
        return torch.cat([z if b is None else b for z, b in zip(zeros, found, strict=True)]).to(self.device)

    def _refuse_bias(self, name: str) -> None:
        """Some quantisers write biases of zeros; others would change the numbers."""
        if f"{name}.bias" in self.checkpoint and bool(self.checkpoint.any_shape(f"{name}.bias").any()):
            raise UnsupportedModel(f"{name} has a bias, which the GPU engine does not serve; use --device cpu")

    def _product(self, at: str, inputs: int, parts: dict[str, int]) -> Product:
        outputs = sum(parts.values())
        codes = [self.checkpoint.codes(at + name, rows, inputs) for name, rows in parts.items()]
        known = [part for part in codes if part is not None]
        if len(known) == len(codes) and len({part.group for part in known}) == 1 and fits(inputs, known[0].group):
            return Product(self._packed(known), outputs, inputs)
        dense = [
            self.matrix(f"{at}{name}.weight", rows, inputs) if part is None else part.dequantized().to(self.device)
            for (name, rows), part in zip(parts.items(), codes, strict=True)
        ]
        return Product(torch.cat(dense), outputs, inputs)

    def _packed(self, parts: list[Quantized]) -> W4Weight:
        codes, scales, zeros = (
            torch.cat([getattr(part, field) for part in parts]).to(self.device)
            for field in ("codes", "scales", "zeros")
        )
        return pack_w4(codes, scales, zeros, parts[0].group)
