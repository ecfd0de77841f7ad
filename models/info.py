"""What a checkpoint says about itself: the facts of `config.json` that both ends need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar, cast

from acespec.models.config_files import Json, end_ids, read_json, read_json_if_any
from acespec.proto.errors import UnsupportedModel

T = TypeVar("T")
ModelType = Literal["llama", "qwen2", "qwen3"]

ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
)
"""The model types that the verifier runs, and the class names that checkpoints give them."""

MANIFEST = "acespec.json"
"""The file by which a converted folder says where it came from."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Facts of one checkpoint. Sizes are counts of values; `vocab_size` is logit rows, padding included."""

    name: str
    model_type: ModelType
    architecture: str
    vocab_size: int
    max_length: int
    eos_ids: tuple[int, ...]
    hidden_size: int
    ffn_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, object]
    """Empty for plain rope."""
    attention_bias: bool
    """Biases on the query, key and value projections."""
    tied: bool
    """The output matrix is the embedding."""

    @staticmethod
    def read(folder: Path | str) -> ModelInfo:
        """Read a Hugging Face style folder.

        Raises ModelNotFound without config.json, IntegrityError if it is not JSON, UnsupportedModel for an
        architecture or variant that the verifier does not run.
        """
        folder = Path(folder)
        name = model_name(folder)
        config = read_json(folder / "config.json")
        model_type = require_served(str(config.get("model_type", "nothing")), name)
        refuse_variants(config, name)
        return _info(folder, name, model_type, config)


def require_served(model_type: str, name: str) -> ModelType:
    """The model type, if it is one that the verifier runs; else UnsupportedModel, naming those that are."""
    if model_type not in ARCHITECTURES:
        raise UnsupportedModel(
            f"{name} is of architecture {model_type!r}; served are {', '.join(ARCHITECTURES)} (dense): choose another"
        )
    return cast(ModelType, model_type)


def refuse_variants(config: Json, name: str) -> None:
    """Raise UnsupportedModel for settings that would change the numbers and that the verifier does not know."""
    if "quantization" in config:
        raise UnsupportedModel(
            f"{name} has MLX-quantised weights; the verifier runs float, AWQ and GPTQ ones: choose another copy"
        )
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"{name} uses the activation {config['hidden_act']!r}; only silu is served")
    if config.get("mlp_bias"):
        raise UnsupportedModel(f"{name} has biases in its MLP, which are not served")
    if config.get("use_sliding_window"):
        raise UnsupportedModel(f"{name} attends within a sliding window, which is not served")


def model_name(folder: Path) -> str:
    """The name that a person knows this folder by: its manifest's, its hub repository's, or its own."""
    stated = read_json_if_any(folder / MANIFEST).get("name")
    if isinstance(stated, str):
        return stated
    resolved = folder.resolve()
    for parent in (folder, *resolved.parents):
        if parent.name.startswith("models--"):
            return parent.name.removeprefix("models--").replace("--", "/")
    return resolved.name


def _info(folder: Path, name: str, model_type: ModelType, config: Json) -> ModelInfo:
    def integer(key: str, default: int | None = None) -> int:
        return _value(config, key, int, default, name)

    heads, hidden = integer("num_attention_heads"), integer("hidden_size")
    theta, scaling = _rope(config)
    return ModelInfo(
        name=name,
        model_type=model_type,
        architecture=ARCHITECTURES[model_type],
        vocab_size=integer("vocab_size"),
        max_length=integer("max_position_embeddings"),
        eos_ids=end_ids(folder),
        hidden_size=hidden,
        ffn_size=integer("intermediate_size"),
        layers=integer("num_hidden_layers"),
        heads=heads,
        kv_heads=integer("num_key_value_heads", heads),
        head_dim=integer("head_dim", hidden // heads),
        norm_eps=float(_value(config, "rms_norm_eps", (int, float), 1e-6, name)),
        rope_theta=theta,
        rope_scaling=scaling,
        attention_bias=model_type == "qwen2" or bool(config.get("attention_bias")),
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def _rope(config: Json) -> tuple[float, Mapping[str, object]]:
    """Base and scaling, from the older pair of keys or from the newer `rope_parameters`."""
    newer = config.get("rope_parameters") or {}
    parameters = dict(newer) if isinstance(newer, dict) else {}
    theta = parameters.pop("rope_theta", None) or config.get("rope_theta") or 10000.0
    older = config.get("rope_scaling")
    scaling = dict(older) if isinstance(older, dict) else parameters
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    return float(str(theta)), MappingProxyType({} if kind == "default" else scaling)


def _value(config: Json, key: str, kind: type[T] | tuple[type[T], ...], default: T | None, name: str) -> T:
    value = config.get(key)
    if isinstance(value, kind):
        return value
    if value is None and default is not None:
        return default
    raise UnsupportedModel(f"{name} cannot be used: its config.json gives {key} as {value!r}")
