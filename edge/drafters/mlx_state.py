"""One MLX language model and its KV cache.

Everything is made on first use, in the thread that uses it: MLX streams belong to threads, and a value that is not yet
computed cannot be computed elsewhere. Each call leaves nothing uncomputed behind.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

from acespec.edge.drafters.logit_source import RollingState, Rows
from acespec.proto.errors import ModelError, UnsupportedModel

_PLAIN_CACHES = ("KVCache", "QuantizedKVCache", "ConcatenateKVCache")
_SLIDING_CACHE = "RotatingKVCache"

log = logging.getLogger(__name__)


class MlxState(RollingState):
    """Logits by mlx-lm.

    Args:
        folder: a checkpoint that mlx-lm loads (config.json and safetensors, quantised or not).
        max_kv: most ids in the cache.
    """

    def __init__(self, folder: Path, max_kv: int) -> None:
        self._model, config = _load(folder)
        super().__init__(_window(folder, self._model, config, max_kv), _vocabulary(config))
        self._cache: list[Any] = make_prompt_cache(self._model)

    @property
    def cached(self) -> int:
        """See `LogitSource.cached`."""
        return int(self._cache[0].offset) if self._cache else 0

    def close(self) -> None:
        """See `LogitSource.close`."""
        self._model, self._cache = None, []

    def _feed(self, ids: list[int], rows: int) -> Rows:
        logits = self._forward(ids)
        if not rows:
            mx.eval([cache.state for cache in self._cache])
            return np.empty((0, 0), np.float32)
        wanted = logits[0, -rows:].astype(mx.float32)
        mx.eval(wanted)
        return np.array(wanted)

    def _forget(self, keep: int) -> None:
        surplus = len(self._ids) - keep
        for cache in self._cache:
            cache.trim(surplus)

    def _forward(self, ids: list[int]) -> Any:
        return self._model(mx.array([ids], dtype=mx.int32), cache=self._cache)


def _load(folder: Path) -> tuple[Any, dict[str, Any]]:
    """(model, config)."""
    try:
        model, config = load_model(folder)
    except FileNotFoundError as error:
        raise ModelError(f"draft model {folder.name}: {error}; fetch it again with `acespec models pull`") from error
    except ValueError as error:
        raise UnsupportedModel(f"draft model {folder.name}: mlx-lm cannot load it: {error}") from error
    return model, config


def _vocabulary(config: dict[str, Any]) -> int:
    text: dict[str, Any] = config.get("text_config") or {}
    return int(config.get("vocab_size") or text.get("vocab_size") or 2**31)


def _window(folder: Path, model: Any, config: dict[str, Any], max_kv: int) -> int:
    """The ids that the cache may hold: bounded by the model's context and by its sliding-window layers."""
    window = min(max_kv, int(config.get("max_position_embeddings") or max_kv))
    for cache in make_prompt_cache(model):
        kind = type(cache).__name__
        if kind == _SLIDING_CACHE:
            # Below its size a rotating cache rolls back exactly; past it, it has overwritten what it would need.
            window = min(window, int(cache.max_size) - 1)
        elif kind not in _PLAIN_CACHES:
            raise UnsupportedModel(
                f"draft model {folder.name} keeps its state in a {kind}, which cannot be rolled back exactly; "
                "choose a model with plain attention layers"
            )
    log.debug("draft model %s: window of %d ids", folder.name, window)
    return window
