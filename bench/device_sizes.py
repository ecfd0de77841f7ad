"""Which shapes the device is tried with: those of an 8B Llama, or tiny ones for the interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from acespec.cloud.torch_backend.config import ModelConfig

Kind = Literal["bf16", "w4"]
"""Of weights."""
KINDS: tuple[Kind, ...] = ("bf16", "w4")


@dataclass(frozen=True, slots=True)
class Sizes:
    """All that differs between a device and the interpreter.

    Attributes:
        model: the shape whose products and steps are timed.
        small: the model whose bits are compared.
        group: inputs that share a scale of 4-bit weights.
        rows: numbers of rows whose bits a product must not depend on; the last is the most.
        timed_rows: rows of timed products.
        noise_vocab, noise_rows: tokens and (seed, position) pairs whose noise is compared.
        head_inputs: width of the head whose draws are compared.
        drawn_rows: how many draws are compared.
        text: tokens of the text whose logits are compared.
        window: the last of them, which are verified in different ways.
        kinds: of the small model's weights. draws: names of the rules that its tokens are drawn by.
        contexts, drafts, sessions: of timed attention.
        sampled_rows: of the timed head. draw_rows: of timed draws from stored logits.
        step_context, step_sessions, step_rows: of timed steps; rows are those of a session.
        many_rows: rows for which small kernels are bound by memory.
        curve_contexts, curve_sessions, curve_rows, curve_repeats: the grid of the timing profile.
        pages: most KV pages of the timed model.
    """

    model: ModelConfig
    small: ModelConfig
    group: int
    rows: tuple[int, ...]
    timed_rows: tuple[int, ...]
    noise_vocab: int
    noise_rows: int
    head_inputs: int
    drawn_rows: int
    text: int
    window: int
    kinds: tuple[Kind, ...]
    draws: tuple[str, ...]
    contexts: tuple[int, ...]
    drafts: tuple[int, ...]
    sessions: tuple[int, ...]
    sampled_rows: tuple[int, ...]
    draw_rows: tuple[int, ...]
    step_context: int
    step_sessions: tuple[int, ...]
    step_rows: tuple[int, ...]
    many_rows: int
    curve_contexts: tuple[int, ...]
    curve_sessions: tuple[int, ...]
    curve_rows: tuple[int, ...]
    curve_repeats: int
    pages: int
    copy_bytes: int


def _llama(vocab: int, hidden: int, layers: int, heads: int, kv_heads: int, head_dim: int, ffn: int) -> ModelConfig:
    return ModelConfig(
        family="llama",
        vocab_rows=vocab,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=ffn,
        max_length=40960,
        norm_eps=1e-5,
        rope_theta=500000.0,
        tied=False,
        qk_norm=False,
    )


LLAMA_8B = Sizes(
    model=_llama(128256, 4096, 32, 32, 8, 128, 14336),
    # Its heads are those of the large one, so that the same attention is looked at and nothing is compiled twice.
    small=_llama(32000, 1024, 4, 32, 8, 128, 4096),
    group=128,
    rows=(*range(1, 10), 16, 64, 128, 256),
    timed_rows=(1, 8, 64, 128, 256),
    noise_vocab=152_064,
    noise_rows=12,
    head_inputs=512,
    drawn_rows=64,
    text=521,
    window=13,
    kinds=("bf16", "w4"),
    draws=("greedy", "temperature", "filters"),
    contexts=(1024, 8192, 32768),
    drafts=(0, 4, 8),
    sessions=(1, 8),
    sampled_rows=(1, 8, 64, 128, 256),
    draw_rows=(8, 32, 128),
    step_context=1024,
    step_sessions=(1, 8, 32),
    step_rows=(1, 8),
    many_rows=4096,
    curve_contexts=(1024, 4096),
    curve_sessions=(1, 8, 32),
    curve_rows=(1, 2, 4, 8, 16, 32, 64, 128),
    curve_repeats=5,
    pages=4096,
    copy_bytes=2 << 30,
)
"""Llama 3 8B's shapes."""

TINY = Sizes(
    model=_llama(256, 32, 1, 2, 1, 16, 64),
    small=_llama(160, 32, 1, 2, 1, 16, 64),
    group=32,
    rows=(1, 66),
    timed_rows=(2,),
    noise_vocab=1027,
    noise_rows=2,
    head_inputs=32,
    drawn_rows=6,
    text=4,
    window=3,
    kinds=("bf16",),
    draws=("filters",),
    contexts=(70,),
    drafts=(0, 2),
    sessions=(2,),
    sampled_rows=(2,),
    draw_rows=(2,),
    step_context=64,
    step_sessions=(1,),
    step_rows=(1,),
    many_rows=3,
    curve_contexts=(4,),
    curve_sessions=(1,),
    curve_rows=(1, 3),
    curve_repeats=1,
    pages=8,
    copy_bytes=1 << 12,
)
"""As small as every path allows."""
