"""Models of random weights, made on the device: for times and bits, which no checkpoint is needed for.

Weights are scaled so that each product keeps the size of its input; activations stay finite over any number of layers.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Sequence
from typing import TypeVar, cast

import torch

from acespec.bench.device_lab import Lab
from acespec.bench.device_sizes import Kind
from acespec.cloud.cuda_backend.kv_pool import KvPool, page_bytes
from acespec.cloud.cuda_backend.limits import PassLimits
from acespec.cloud.cuda_backend.product import Product, Weight
from acespec.cloud.cuda_backend.runner import CudaRunner
from acespec.cloud.cuda_backend.weights import Layer, Weights
from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.runner import Block
from acespec.cloud.torch_backend.config import ModelConfig
from acespec.cloud.torch_backend.rope import RopeTable
from acespec.kernels.w4_weight import pack_w4
from acespec.proto.sampling_params import SamplingParams

CODE_SPREAD = 4.61
"""Standard deviation of codes 0 .. 15, all equally likely."""
MIDDLE = 8
"""The code that stands for 0."""
LOGIT_SPREAD = 2.5
SHARE_OF_FREE = 0.6
"""Of the memory that weights leave free, what the KV pages may take."""

T = TypeVar("T")
GREEDY = DrawRule(SamplingParams(), seed=0, prompt_len=0)


def random_weight(lab: Lab, outputs: int, inputs: int, kind: Kind) -> Weight:
    """A weight whose product has the size of its input."""
    scale = inputs**-0.5
    if kind == "bf16":
        return lab.normal(outputs, inputs, scale=scale)
    shape = (outputs, inputs // lab.sizes.group)
    codes = torch.randint(0, 16, (outputs, inputs), generator=lab.generator, device=lab.device, dtype=torch.uint8)
    scales = torch.rand(shape, generator=lab.generator, device=lab.device).add_(0.5).mul_(scale / CODE_SPREAD)
    zeros = torch.full(shape, MIDDLE, device=lab.device, dtype=torch.uint8)
    return pack_w4(codes, scales.half(), zeros, lab.sizes.group)


def random_product(lab: Lab, outputs: int, inputs: int, kind: Kind) -> Product:
    """A weight with its tiles."""
    return Product(random_weight(lab, outputs, inputs, kind), outputs, inputs)


def layer_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """(outputs, inputs) of a layer's products."""
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    return {
        "qkv": (q + 2 * kv, config.hidden),
        "o": (config.hidden, q),
        "gate_up": (2 * config.ffn, config.hidden),
        "down": (config.hidden, config.ffn),
    }


def random_weights(lab: Lab, config: ModelConfig, kind: Kind, length: int) -> Weights:
    """All weights of a model for texts of up to `length` positions; embedding and head are bf16 always."""
    rope = RopeTable(config, length)
    return Weights(
        config,
        lab.normal(config.vocab_rows, config.hidden),
        [_layer(lab, config, kind) for _ in range(config.layers)],
        _gains(lab, config.hidden),
        lab.normal(config.vocab_rows, config.hidden, scale=LOGIT_SPREAD * config.hidden**-0.5),
        *(table.to(lab.device) for table in rope.halves()),
    )


def _layer(lab: Lab, config: ModelConfig, kind: Kind) -> Layer:
    products = {name: random_product(lab, *shape, kind) for name, shape in layer_shapes(config).items()}
    return Layer(
        input_norm=_gains(lab, config.hidden),
        qkv=products["qkv"],
        qkv_bias=None,
        q_norm=None,
        k_norm=None,
        attention_out=products["o"],
        post_norm=_gains(lab, config.hidden),
        gate_up=products["gate_up"],
        down=products["down"],
    )


def _gains(lab: Lab, width: int) -> torch.Tensor:
    return lab.normal(width, dtype=torch.float32, scale=0.1) + 1.0


def timed_runner(lab: Lab, kind: Kind) -> CudaRunner:
    """The large model over pages of random keys and values; kept until another kind is asked for."""
    if kind not in lab.runners:
        lab.runners.clear()
        gc.collect()
        if lab.timed:
            torch.cuda.empty_cache()
        config, length = lab.sizes.model, lab.sizes.model.max_length if lab.timed else 256
        weights = random_weights(lab, config, kind, length)
        pool = KvPool(config, _pages(lab, config), PassLimits().rows, lab.device)
        pool.kv.normal_(generator=lab.generator)
        wide = None if lab.timed else False
        lab.runners[kind] = CudaRunner(weights, pool, vocab_size=config.vocab_rows, max_length=length, wide=wide)
    return lab.runners[kind]


def _pages(lab: Lab, config: ModelConfig) -> int:
    if not lab.timed:
        return lab.sizes.pages
    free, _ = torch.cuda.mem_get_info(lab.device)
    return min(lab.sizes.pages, int(SHARE_OF_FREE * free) // page_bytes(config))


def moved(value: T, device: torch.device) -> T:
    """A copy of weights, or of any part of them, on another device."""
    if isinstance(value, torch.Tensor):
        return cast("T", value.to(device))
    if isinstance(value, Product):
        return cast("T", Product(moved(value.weight, device), value.outputs, value.inputs))
    if isinstance(value, list):
        return cast("T", [moved(item, device) for item in value])
    if dataclasses.is_dataclass(value) and not isinstance(value, type | ModelConfig):
        parts = {f.name: moved(getattr(value, f.name), device) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **parts)
    return value


def block(
    pages: Sequence[int],
    start: int,
    tokens: Sequence[int],
    sample_from: int = 0,
    *,
    rule: DrawRule = GREEDY,
    parents: Sequence[int] = (),
) -> Block:
    """A block whose rule does not read what came before."""
    return Block(tuple(pages), start, tuple(tokens), range(start), sample_from, rule, tuple(parents))
