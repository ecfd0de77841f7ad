"""One MLX language model and its KV cache, kept in step with any path by exact rollback.

Everything is made on first use, in the thread that uses it: MLX streams belong to threads, and a value that is not yet
computed cannot be computed elsewhere. Each call leaves nothing uncomputed behind.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model
from numpy.typing import NDArray

from acespec.edge.drafters.prefix import common_prefix
from acespec.proto.errors import ModelError, UnsupportedModel

_PLAIN_CACHES = ("KVCache", "QuantizedKVCache", "ConcatenateKVCache")
_SLIDING_CACHE = "RotatingKVCache"
_ONE_PASS = 16
_CHUNKS = (8, 512)
_CHUNK_SECONDS = (0.05, 0.2)

log = logging.getLogger(__name__)


class MlxState:
    """Logits after a path, reusing what the last path left in the cache.

    Args:
        folder: a checkpoint that mlx-lm loads (config.json and safetensors, quantised or not).
        max_kv: most ids in the cache; of longer paths the model sees a recent window.
    """

    def __init__(self, folder: Path, max_kv: int) -> None:
        self._model, config = _load(folder)
        self._embeddings = _vocabulary(config)
        self.window = _window(folder, self._model, config, max_kv)
        self._cache: list[Any] = make_prompt_cache(self._model)
        self._ids: list[int] = []
        self._base = 0  # position of the first id in the cache
        self._logits: NDArray[np.float32] | None = None  # after all of _ids
        self._chunk = _CHUNKS[0]

    @property
    def cached(self) -> int:
        """Entries in the KV cache."""
        return int(self._cache[0].offset)

    def logits_after(self, path: Sequence[int], should_stop: Callable[[], bool]) -> NDArray[np.float32] | None:
        """The row for the token at position len(path), float32[V]; None if stopped on the way, or for no ids.

        Afterwards the cache holds exactly the path's window. What was done before a stop is kept.
        """
        if not path:
            return None
        self._base = self._base_for(path)
        ids = list(path[self._base :])
        keep = common_prefix(self._ids, ids)
        if keep == len(ids) == len(self._ids) and self._logits is not None:
            return self._logits
        # The last id is always fed, since its row is what is asked for.
        self._roll_back(min(keep, len(ids) - 1))
        while len(ids) - len(self._ids) > _ONE_PASS:
            if should_stop():
                return None
            self._prefill(ids)
        self._logits = self._row(ids[len(self._ids) :])
        return self._logits

    def _base_for(self, path: Sequence[int]) -> int:
        """Where the window begins: at 0, or for long paths at a multiple of half the window.

        Rolling back over such an edge would cost a prefill each way, so the old place is kept while it serves.
        """
        length, half = len(path), max(1, self.window // 2)
        usual = 0 if length <= self.window else -(-(length - self.window) // half) * half
        if usual == self._base or not self.window // 4 <= length - self._base <= self.window:
            return usual
        kept = common_prefix(self._ids, path[self._base :])
        return self._base if 2 * kept > len(self._ids) else usual

    def _roll_back(self, keep: int) -> None:
        surplus = len(self._ids) - keep
        if surplus:
            for cache in self._cache:
                cache.trim(surplus)
            del self._ids[keep:]
        self._logits = None

    def _prefill(self, ids: Sequence[int]) -> None:
        """Feeds the next chunk without its logits; the chunk's size follows the machine's speed."""
        began = time.monotonic()
        chunk = list(ids[len(self._ids) : min(len(self._ids) + self._chunk, len(ids) - 1)])
        self._forward(chunk)
        mx.eval([cache.state for cache in self._cache])
        self._ids += chunk
        self._adapt(time.monotonic() - began)

    def _adapt(self, seconds: float) -> None:
        smallest, largest = _CHUNKS
        quick, slow = _CHUNK_SECONDS
        if seconds < quick:
            self._chunk = min(self._chunk * 2, largest)
        elif seconds > slow:
            self._chunk = max(self._chunk // 2, smallest)

    def _row(self, ids: list[int]) -> NDArray[np.float32]:
        row = self._forward(ids)[0, -1].astype(mx.float32)
        mx.eval(row)
        self._ids += ids
        logits: NDArray[np.float32] = np.array(row)
        return logits

    def _forward(self, ids: list[int]) -> Any:
        # An id that this model lacks (a larger, padded target vocabulary) is read as id 0: it only costs a guess.
        known = [token if token < self._embeddings else 0 for token in ids]
        return self._model(mx.array([known], dtype=mx.int32), cache=self._cache)


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
