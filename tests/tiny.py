"""Tiny random checkpoints: a real Hugging Face style folder in a few hundredths of a second.

The weights are random but not arbitrary: layer outputs outweigh the embedding that enters them, so that
greedy text wanders instead of repeating one token, and logits spread by about 2.5, so that sampling at
temperature 1 is neither flat nor certain. Special tokens get weak rows: text hardly ever ends by itself, and
a test that needs an end names a stop id. The same arguments always give the same folder, byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

ModelType = Literal["llama", "qwen2", "qwen3"]
Weights = dict[str, NDArray[np.float32]]

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Ids 0, 1 and 2; `<|im_end|>` is the end-of-sequence token."""
EOS_ID = 2
MIN_VOCAB = 256 + len(SPECIAL_TOKENS)
LOGIT_STD = 2.5

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

TRAINING_TEXT = """
The river was low that summer, and the stones in the middle of the river were dry enough to sit on.
We sat there and talked about the things that people talk about: the weather, the price of bread, the letters.
When the water rose again, nobody could remember which of the stones had been the one with the white line.
def area(width, height):
    return width * height
for index in range(10):
    if index % 2 == 0:
        print(index, area(index, index + 1))
In 1987 there were 40 houses; in 2024 there are 365. Every house has a number, and every number counts twice.
What is the capital of the country? Where does the road begin, and where does it end? Explain it briefly.
Ein Löffel, zwei Löffel. Où est la gare? El niño está aquí. Это просто слова. 今日は天気がいいです。
"""


def tiny_model_folder(
    path: Path | str,
    *,
    model_type: ModelType = "llama",
    vocab: int = 512,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    ffn: int = 128,
    head_dim: int | None = None,
    seed: int = 0,
    tie: bool = True,
    max_length: int = 512,
    padded_rows: int = 0,
) -> Path:
    """Write a random fp32 checkpoint with tokenizer and ChatML template into `path`, and return it.

    `vocab` counts the tokenizer's tokens (at least 259: bytes and three special tokens; the rest are merges).
    `padded_rows` adds logit rows above the tokenizer's ids, as real checkpoints have them.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, object] = {
        "architectures": [_ARCHITECTURES[model_type]],
        "model_type": model_type,
        "vocab_size": vocab + padded_rows,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim or hidden // heads,
        "hidden_act": "silu",
        "max_position_embeddings": max_length,
        "rms_norm_eps": 1e-5 if model_type == "llama" else 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "tie_word_embeddings": tie,
        "bos_token_id": 1,
        "eos_token_id": EOS_ID,
        "torch_dtype": "float32",
    }
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": EOS_ID})
    save_file(tiny_weights(config, seed), folder / "model.safetensors", metadata={"format": "pt"})
    write_tiny_tokenizer(folder, vocab, max_length)
    return folder


def tiny_weights(config: Mapping[str, object], seed: int) -> Weights:
    """Random fp32 weights for a config, under Hugging Face's tensor names."""
    size = {key: value for key, value in config.items() if isinstance(value, int)}
    hidden, ffn, head_dim = size["hidden_size"], size["intermediate_size"], size["head_dim"]
    q_width, kv_width = size["num_attention_heads"] * head_dim, size["num_key_value_heads"] * head_dim
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, gain: float) -> NDArray[np.float32]:
        values: NDArray[np.float64] = rng.standard_normal((rows, columns)) * (gain / np.sqrt(columns))
        return values.astype(np.float32)

    def norm(width: int, mean: float = 1.0) -> NDArray[np.float32]:
        return (mean + 0.1 * rng.standard_normal(width)).astype(np.float32)

    def token_rows() -> NDArray[np.float32]:
        rows = matrix(size["vocab_size"], hidden, LOGIT_STD)
        rows[: len(SPECIAL_TOKENS)] *= np.float32(0.1)
        return rows

    weights: Weights = {"model.embed_tokens.weight": token_rows(), "model.norm.weight": norm(hidden)}
    for layer in range(size["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        weights[at + "input_layernorm.weight"] = norm(hidden)
        weights[at + "self_attn.q_proj.weight"] = matrix(q_width, hidden, 1.5)
        weights[at + "self_attn.k_proj.weight"] = matrix(kv_width, hidden, 1.5)
        weights[at + "self_attn.v_proj.weight"] = matrix(kv_width, hidden, 1.5)
        weights[at + "self_attn.o_proj.weight"] = matrix(hidden, q_width, 1.5)
        weights[at + "post_attention_layernorm.weight"] = norm(hidden)
        weights[at + "mlp.gate_proj.weight"] = matrix(ffn, hidden, 1.5)
        weights[at + "mlp.up_proj.weight"] = matrix(ffn, hidden, 1.5)
        weights[at + "mlp.down_proj.weight"] = matrix(hidden, ffn, 1.5)
        if config["model_type"] == "qwen2":
            for name, width in (("q", q_width), ("k", kv_width), ("v", kv_width)):
                weights[at + f"self_attn.{name}_proj.bias"] = matrix(1, width, 0.3 * np.sqrt(width))[0]
        if config["model_type"] == "qwen3":
            weights[at + "self_attn.q_norm.weight"] = norm(head_dim, 1.5)
            weights[at + "self_attn.k_norm.weight"] = norm(head_dim, 1.5)
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = token_rows()
    return weights


def write_tiny_tokenizer(folder: Path, vocab: int = 512, max_length: int = 512) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` (ChatML) into `folder`."""
    (folder / "tokenizer.json").write_text(_tokenizer_json(vocab), encoding="utf-8")
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|im_end|>",
            "unk_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": max_length,
            "chat_template": CHATML,
        },
    )


@lru_cache(maxsize=16)
def _tokenizer_json(vocab: int) -> str:
    if vocab < MIN_VOCAB:
        raise ValueError(f"a byte-level tokenizer needs at least {MIN_VOCAB} tokens, not {vocab}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=1,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
    )
    tokenizer.train_from_iterator(TRAINING_TEXT.splitlines(keepends=True), trainer)
    if tokenizer.get_vocab_size() != vocab:
        raise ValueError(f"the training text gives at most {tokenizer.get_vocab_size()} tokens, not {vocab}")
    return tokenizer.to_str(pretty=True)


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


_ARCHITECTURES: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
