"""Make a tiny GGUF file, and a wheel around it, from the same random weights as the tiny folders."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray

from tests.tiny import CHATML, ModelType, tiny_model_folder

GGUF_NAMES: Mapping[str, str] = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """GGUF's name of a Hugging Face tensor."""
    if name in GGUF_NAMES:
        return GGUF_NAMES[name]
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    stem, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{GGUF_NAMES[stem]}.{kind}"


def neighbour_order(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows as llama.cpp wants them, spelt out: row 2i+j of a head is row j*half+i of the checkpoint."""
    width = rows.shape[0] // heads
    order = [h * width + j * (width // 2) + i for h in range(heads) for i in range(width // 2) for j in range(2)]
    return rows[order]


def write_tiny_gguf(
    path: Path,
    *,
    model_type: ModelType = "llama",
    tie: bool = True,
    seed: int = 0,
    pre: str = "gpt-2",
    quantisation: str = "F32",
    architecture: str | None = None,
    extra: Mapping[str, str | int] | None = None,
    rope_factors: NDArray[np.float32] | None = None,
) -> Path:
    """Write a GGUF file beside its folder of origin (`path` with suffix .origin), and return `path`."""
    origin = tiny_model_folder(path.with_suffix(".origin"), model_type=model_type, tie=tie, seed=seed)
    config = json.loads((origin / "config.json").read_text())
    arch = architecture or model_type
    writer = GGUFWriter(path, arch)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    _add_tokenizer(writer, json.loads((origin / "tokenizer.json").read_text()), pre)
    for key, value in (extra or {}).items():
        (writer.add_string if isinstance(value, str) else writer.add_uint32)(key, value)
    if rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", rope_factors)
    _add_weights(writer, origin, config, model_type, quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(path: Path, member: str, content: bytes) -> Path:
    """A pure-Python wheel that holds nothing but `content` at `member`; pip accepts it."""
    name, version = path.name.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def _add_tokenizer(writer: GGUFWriter, tokenizer: dict[str, Any], pre: str) -> None:
    vocab = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    special = {token["content"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([token for token, _ in vocab])
    writer.add_token_types([3 if token in special else 1 for token, _ in vocab])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHATML)


def _add_weights(
    writer: GGUFWriter, origin: Path, config: dict[str, int], model_type: ModelType, quantisation: str
) -> None:
    from safetensors.numpy import load_file

    kind = GGMLQuantizationType[quantisation]
    for name, values in load_file(origin / "model.safetensors").items():
        if model_type == "llama" and ".q_proj." in name:
            values = neighbour_order(values, config["num_attention_heads"])
        if model_type == "llama" and ".k_proj." in name:
            values = neighbour_order(values, config["num_key_value_heads"])
        if values.ndim == 2 and quantisation != "F32":
            writer.add_tensor(gguf_name(name), quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), values)
