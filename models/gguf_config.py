"""GGUF metadata -> `config.json` and `generation_config.json`."""

from __future__ import annotations

import math

import numpy as np

from acespec.models.gguf_file import GgufFile
from acespec.models.gguf_names import ROPE_FACTORS
from acespec.models.gguf_tokenizer import end_ids
from acespec.models.info import ARCHITECTURES, require_served
from acespec.proto.errors import UnsupportedModel

LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_CONTEXT = 1.0, 4.0, 8192


def hugging_face_config(file: GgufFile) -> dict[str, object]:
    """The `config.json` of the file. Raises UnsupportedModel for what the dense architectures do not have."""
    require_served(file.architecture, file.path.name)
    _refuse_variants(file)
    heads = file.integer("{arch}.attention.head_count")
    hidden = file.integer("{arch}.embedding_length")
    config: dict[str, object] = {
        "architectures": [ARCHITECTURES[file.architecture]],
        "model_type": file.architecture,
        "vocab_size": file.shape("token_embd.weight")[0],
        "hidden_size": hidden,
        "intermediate_size": file.integer("{arch}.feed_forward_length"),
        "num_hidden_layers": file.integer("{arch}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.integer("{arch}.attention.head_count_kv", heads),
        "head_dim": file.integer("{arch}.attention.key_length", hidden // heads),
        "hidden_act": "silu",
        "max_position_embeddings": file.integer("{arch}.context_length"),
        "rms_norm_eps": file.number("{arch}.attention.layer_norm_rms_epsilon"),
        "rope_theta": file.number("{arch}.rope.freq_base", 10000.0),
        "attention_bias": file.architecture == "llama" and "blk.0.attn_q.bias" in file.tensors,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": "float32",
    }
    if ROPE_FACTORS in file.tensors:
        config["rope_scaling"] = _llama3_scaling(file, float(str(config["rope_theta"])))
    return config | special_ids(file)


def special_ids(file: GgufFile) -> dict[str, object]:
    """Begin, end and padding ids, as both JSON files name them; several ends make a list."""
    ends = end_ids(file)
    ids: dict[str, object] = {"eos_token_id": ends[0] if len(ends) == 1 else ends}
    for key, name in (("bos", "bos_token_id"), ("padding", "pad_token_id")):
        if (value := file.get(f"tokenizer.ggml.{key}_token_id")) is not None:
            ids[name] = value
    return ids


def _refuse_variants(file: GgufFile) -> None:
    if file.integer("split.count", 1) > 1:
        raise UnsupportedModel(
            f"{file.path.name} is one part of a split GGUF: join the parts with llama-gguf-split --merge first"
        )
    if file.integer("{arch}.expert_count", 0) > 0:
        raise UnsupportedModel(f"{file.path.name} is a mixture of experts; only dense models are served")
    scaling = file.text("{arch}.rope.scaling.type", "none")
    if scaling != "none":
        raise UnsupportedModel(f"{file.path.name} uses {scaling} rope scaling, which is not served from GGUF files")


def _llama3_scaling(file: GgufFile, theta: float) -> dict[str, object]:
    """The parameters behind the divisors that llama.cpp stored, checked by computing the divisors again."""
    stored = file.dequantised(ROPE_FACTORS)
    factor = float(stored.max())
    if not np.allclose(stored, _llama3_divisors(theta, 2 * stored.size, factor), rtol=1e-4):
        raise UnsupportedModel(f"{file.path.name} has rope frequency factors other than those of Llama 3")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LLAMA3_LOW,
        "high_freq_factor": LLAMA3_HIGH,
        "original_max_position_embeddings": LLAMA3_CONTEXT,
    }


def _llama3_divisors(theta: float, head_dim: int, factor: float) -> list[float]:
    """By how much Llama 3 slows each rope frequency: long waves by `factor`, short ones not at all."""

    def divisor(pair: int) -> float:
        waves: float = LLAMA3_CONTEXT / (2 * math.pi * math.pow(theta, 2 * pair / head_dim))
        if waves > LLAMA3_HIGH:
            return 1.0
        if waves < LLAMA3_LOW:
            return factor
        smooth = (waves - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW)
        return 1.0 / ((1.0 - smooth) / factor + smooth)

    return [divisor(pair) for pair in range(head_dim // 2)]
