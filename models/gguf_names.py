"""What a GGUF tensor is called in a Hugging Face checkpoint, for the dense architectures that we run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_WHOLE: Mapping[str, str] = MappingProxyType(
    {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
)
_IN_LAYER: Mapping[str, str] = MappingProxyType(
    {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
)
_LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")

ROPE_FACTORS = "rope_freqs.weight"
"""Frequency divisors of Llama 3's rope scaling: configuration, not a weight."""


def hugging_face_name(name: str) -> str | None:
    """The checkpoint's name of a GGUF tensor, or None for one that these architectures do not have."""
    if name in _WHOLE:
        return _WHOLE[name]
    if (match := _LAYER_TENSOR.fullmatch(name)) and match[2] in _IN_LAYER:
        return f"model.layers.{match[1]}.{_IN_LAYER[match[2]]}.{match[3]}"
    return None


def projection(name: str) -> str | None:
    """`q` or `k` for the two projections whose rows llama.cpp reorders, else None."""
    match = _LAYER_TENSOR.fullmatch(name)
    return {"attn_q": "q", "attn_k": "k"}.get(match[2]) if match else None
