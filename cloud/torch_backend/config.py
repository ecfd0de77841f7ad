"""What a checkpoint's `config.json` says about its shape, for the three families that we run.

Anything that would change the mathematics and is not served is refused by name: a silently ignored setting gives
slightly wrong text, which nobody notices.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from acespec.cloud.torch_backend.quantization_config import Quantization, Settings, parse_quantization
from acespec.proto.errors import ModelNotFound, UnsupportedModel

FAMILIES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1's stretched rotary frequencies."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_length: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape and constants of a dense decoder.

    Attributes:
        vocab_rows: rows of the embedding, padding included.
        tied: whether the output head is the embedding itself.
        qk_norm: whether each query and key head passes an RMSNorm (Qwen3).
        scaling: how rotary frequencies are stretched; None is plain RoPE.
        quantization: how 4-bit weights are stored; None if all weights are floats.
    """

    family: str
    vocab_rows: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    max_length: int
    norm_eps: float
    rope_theta: float
    tied: bool
    qk_norm: bool
    scaling: Llama3Scaling | None = None
    quantization: Quantization | None = None

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads


def read_config(folder: Path) -> ModelConfig:
    """Read `folder/config.json`.

    Raises `ModelNotFound` if there is none and `UnsupportedModel`, naming the setting, for one we do not run.
    """
    path = folder / "config.json"
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelNotFound(f"{folder} has no config.json; it is not a model folder") from None
    except (OSError, ValueError) as error:
        raise UnsupportedModel(f"{path} cannot be read ({error}); fetch the model again") from None
    if not isinstance(settings, dict):
        raise UnsupportedModel(f"{path} is not a JSON object; fetch the model again")
    return parse_config(settings)


def parse_config(settings: Settings) -> ModelConfig:
    """Build a `ModelConfig` from the parsed JSON; same errors as `read_config`."""
    family = settings.get("model_type")
    if family not in FAMILIES:
        raise UnsupportedModel(
            f"model_type {family!r} is not one that the torch backend runs; it runs {', '.join(FAMILIES)}"
        )
    _refuse_foreign_settings(settings)
    hidden, heads = _integer(settings, "hidden_size"), _integer(settings, "num_attention_heads")
    kv_heads = _integer(settings, "num_key_value_heads", heads)
    head_dim = _integer(settings, "head_dim", hidden // heads)
    if heads % kv_heads or head_dim % 2:
        raise UnsupportedModel(f"{heads} heads over {kv_heads} KV heads of width {head_dim} do not divide evenly")
    rope = _rope_settings(settings)
    return ModelConfig(
        family=str(family),
        vocab_rows=_integer(settings, "vocab_size"),
        hidden=hidden,
        layers=_integer(settings, "num_hidden_layers"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=_integer(settings, "intermediate_size"),
        max_length=_integer(settings, "max_position_embeddings"),
        norm_eps=_number(settings, "rms_norm_eps", 1e-6),
        rope_theta=_number(rope, "rope_theta", _number(settings, "rope_theta", 10000.0)),
        tied=bool(settings.get("tie_word_embeddings", False)),
        qk_norm=family == "qwen3",
        scaling=_scaling(rope),
        quantization=parse_quantization(settings),
    )


def _refuse_foreign_settings(settings: Settings) -> None:
    if settings.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"hidden_act {settings['hidden_act']!r} is not served; only silu is")
    if settings.get("use_sliding_window"):
        raise UnsupportedModel("sliding-window attention (use_sliding_window) is not served")
    _refuse_foreign_layers(settings)


def _refuse_foreign_layers(settings: Settings) -> None:
    """State that is no plain KV cannot be rolled back by a length change."""
    kinds = settings.get("layer_types")
    foreign = {str(kind) for kind in kinds if kind != "full_attention"} if isinstance(kinds, list) else set()
    if foreign:
        raise UnsupportedModel(f"layers of kind {', '.join(sorted(foreign))} (layer_types) are not served")
    # Qwen's files name a window that is off unless `use_sliding_window` says otherwise.
    window, length = settings.get("sliding_window"), settings.get("max_position_embeddings")
    narrow = isinstance(window, int) and isinstance(length, int) and window < length
    if narrow and settings.get("model_type") == "llama" and settings.get("use_sliding_window") is not False:
        raise UnsupportedModel(f"sliding-window attention (sliding_window {window}) is not served")


def _rope_settings(settings: Settings) -> Settings:
    """RoPE's own table: `rope_parameters` in newer files, `rope_scaling` in older ones."""
    for key in ("rope_parameters", "rope_scaling"):
        table = settings.get(key)
        if isinstance(table, dict):
            return table
    return {}


def _scaling(rope: Settings) -> Llama3Scaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise UnsupportedModel(f"rope scaling {kind!r} is not served; default and llama3 are")
    return Llama3Scaling(
        factor=_number(rope, "factor"),
        low_freq_factor=_number(rope, "low_freq_factor"),
        high_freq_factor=_number(rope, "high_freq_factor"),
        original_length=_integer(rope, "original_max_position_embeddings"),
    )


def _number(settings: Settings, key: str, default: float | None = None) -> float:
    value = settings.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnsupportedModel(f"config.json gives {key} as {value!r}; a number is needed")
    return float(value)


def _integer(settings: Settings, key: str, default: int | None = None) -> int:
    value = settings.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise UnsupportedModel(f"config.json gives {key} as {value!r}; a positive integer is needed")
    return value
