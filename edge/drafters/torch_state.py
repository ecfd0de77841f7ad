"""One transformers model and its KV cache in torch: slow on a CPU, but it runs whatever transformers runs."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.utils.logging import disable_progress_bar

from acespec.edge.drafters.logit_source import RollingState, Rows
from acespec.proto.errors import ModelError, UnsupportedModel

_FULL, _SLIDING = "full_attention", "sliding_attention"

log = logging.getLogger(__name__)


class TorchState(RollingState):
    """Logits by transformers: float32 on a CPU, the checkpoint's own type on an accelerator.

    Args:
        folder: a checkpoint of a causal language model.
        max_kv: most ids in the cache.
        threads: CPU threads of torch, for the whole process.

    Raises:
        ModelError: the folder cannot be loaded.
        UnsupportedModel: the model's state cannot be rolled back.
    """

    def __init__(self, folder: Path, max_kv: int, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        self._device = torch.accelerator.current_accelerator() or torch.device("cpu")
        self._model: Any = _load(folder, self._device)
        config = self._model.config.get_text_config()
        super().__init__(_window(folder, config, max_kv), int(config.vocab_size))
        self._cache: Any = DynamicCache()

    def close(self) -> None:
        """See `LogitSource.close`."""
        self._model = self._cache = None

    @property
    def cached(self) -> int:
        """See `LogitSource.cached`."""
        return int(self._cache.get_seq_length()) if self._cache is not None else 0

    def _feed(self, ids: list[int], rows: int) -> Rows:
        inputs = torch.tensor([ids], device=self._device)
        with torch.inference_mode():
            # Zero rows cannot be asked for: one is computed and dropped.
            done = self._model(inputs, cache=self._cache, use_cache=True, logits_to_keep=max(rows, 1))
        if not rows:
            return np.empty((0, 0), np.float32)
        logits: Rows = done.logits[0].float().cpu().numpy()
        return logits

    def _forget(self, keep: int) -> None:
        # A count below 0 drops so many entries from the end, in all versions.
        self._cache.crop(keep - len(self._ids))


def _load(folder: Path, device: torch.device) -> Any:
    disable_progress_bar()
    dtype: Any = torch.float32 if device.type == "cpu" else "auto"
    with warnings.catch_warnings():
        # What transformers advises about its own loading is nothing that a user of a drafter could act on.
        warnings.simplefilter("ignore")
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            first = str(error).strip().partition("\n")[0]
            raise ModelError(f"draft model {folder.name}: transformers cannot load it: {first}") from error
    return model.eval().to(device)


def _window(folder: Path, config: Any, max_kv: int) -> int:
    """The ids that the cache may hold: bounded by the model's context and by its sliding-window layers."""
    window = min(max_kv, int(getattr(config, "max_position_embeddings", None) or max_kv))
    kinds = set(getattr(config, "layer_types", None) or [_FULL])
    if _SLIDING in kinds:
        # Within the sliding window these layers are plain ones.
        window = min(window, int(config.sliding_window) - 1)
    if unknown := kinds - {_FULL, _SLIDING}:
        raise UnsupportedModel(
            f"draft model {folder.name} has layers of kind {', '.join(sorted(unknown))}, whose state cannot be rolled "
            "back exactly; choose a model with plain attention layers"
        )
    log.debug("draft model %s: window of %d ids", folder.name, window)
    return window
