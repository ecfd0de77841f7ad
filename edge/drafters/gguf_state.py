"""One GGUF model and its KV cache in llama.cpp, by the C interface that `ik-llama-cpp-python` ships.

The package's own high-level class can neither roll back nor give more than one row of logits; its ctypes layer can.
Passes of 32 and more ids run other matrix kernels, which are three times quicker a row, and for some number formats
wrong (version 0.1.5 with Q4_1): a check at the start decides whether they are used.
"""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Any

import numpy as np
from ik_llama_cpp import _ctypes_api as llama

from acespec.edge.drafters.logit_source import NARROW, WIDE, RollingState, Rows
from acespec.proto.errors import ModelError, UnsupportedModel

_SEQUENCE = 0
_WIDE_FROM = 32
_STRIDE = 7919
_AGREE = 0.99
"""Correlation of two rows of logits: 0.9997 between right kernels of different rounding, 0.7-0.9 with a wrong one."""
_LEVELS = {3: logging.INFO, 4: logging.INFO}
"""ggml's warnings and errors; the rest is for debugging. A load prints a page of facts, and failures raise."""

log = logging.getLogger(__name__)


class GgufState(RollingState):
    """Logits by llama.cpp on the CPU.

    Args:
        file: a GGUF file of a model with plain attention layers.
        max_kv: most ids in the cache.
        threads: CPU threads; more than there are idle cores make it many times slower.

    Raises:
        ModelError: the file is missing, broken or of an architecture that llama.cpp does not know.
        UnsupportedModel: the model's state cannot be rolled back.
    """

    def __init__(self, file: Path, max_kv: int, threads: int = 1) -> None:
        self._context: int | None = None
        self._model: int | None = None
        _start_backend()
        self._model = _load(file)
        trained = int(_library.llama_n_ctx_train(self._model))
        self._rows = int(llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self._model)))
        super().__init__(min(max_kv, trained or max_kv), self._rows)
        if _library.llama_model_is_recurrent(self._model):
            self.close()
            raise UnsupportedModel(
                f"{file.name} has recurrent layers, whose state cannot be rolled back exactly; choose a model with "
                "plain attention layers"
            )
        self._context = self._opened(file, threads)
        self._batch = _Batch(WIDE)
        if not self._wide_passes_agree():
            log.info("llama.cpp computes wide passes of %s wrongly on this machine: they are avoided", file.name)
            self.widest_pass = NARROW

    def close(self) -> None:
        """See `LogitSource.close`."""
        if self._context is not None:
            self._batch.free()
            llama.llama_free(self._context)
        if self._model is not None:
            llama.llama_free_model(self._model)
        self._context = self._model = None

    def __del__(self) -> None:
        self.close()

    def _opened(self, file: Path, threads: int) -> int:
        wanted = llama.llama_context_default_params()
        wanted.n_ctx = self.window
        wanted.n_batch = wanted.n_ubatch = WIDE
        wanted.n_threads = wanted.n_threads_batch = threads
        # Its flash attention asserts on longer prompts on CPUs without AVX-VNNI.
        wanted.flash_attn = False
        context: int | None = llama.llama_init_from_model(self._model, wanted)
        if not context:
            self.close()
            raise ModelError(f"llama.cpp has no memory for {self.window} ids of {file.name}: lower --max-kv-size")
        return context

    def _wide_passes_agree(self) -> bool:
        """Whether a pass over many ids gives about the same last row as several over few."""
        ids = [at * _STRIDE % self._rows for at in range(min(_WIDE_FROM, self.window))]
        rows: list[Rows] = []
        for width in (len(ids), NARROW):
            for at in range(0, len(ids), width):
                last = self._append(ids[at : at + width], 1)[0]
            rows.append(last)
            self._roll_back(0)
        return float(np.corrcoef(rows[0], rows[1])[0, 1]) > _AGREE

    def _feed(self, ids: list[int], rows: int) -> Rows:
        status = llama.llama_decode(self._context, self._batch.filled(ids, len(self._ids), rows))
        if status != 0:
            raise ModelError(f"llama.cpp failed on a pass over {len(ids)} ids (status {status}): restart the edge")
        logits = np.empty((rows, self._rows), np.float32)
        for row, index in zip(logits, range(len(ids) - rows, len(ids)), strict=True):
            row[:] = self._logits_at(index)
        return logits

    def _logits_at(self, index: int) -> Rows:
        pointer = llama.llama_get_logits_ith(self._context, index)
        return np.ctypeslib.as_array(pointer, (self._rows,))

    def _forget(self, keep: int) -> None:
        if not _library.llama_kv_cache_seq_rm(self._context, _SEQUENCE, keep, -1):
            raise UnsupportedModel("llama.cpp cannot roll this model's cache back; choose one with plain attention")


class _Batch:
    """A reusable llama_batch of one sequence."""

    def __init__(self, size: int) -> None:
        self._batch = llama.llama_batch_init(size, 0, 1)
        for i in range(size):
            self._batch.n_seq_id[i] = 1
            self._batch.seq_id[i][0] = _SEQUENCE
        self._tokens = np.ctypeslib.as_array(self._batch.token, (size,))
        self._positions = np.ctypeslib.as_array(self._batch.pos, (size,))
        self._wanted = np.ctypeslib.as_array(self._batch.logits, (size,))

    def filled(self, ids: list[int], position: int, rows: int) -> Any:
        """The batch with `ids` from `position` on, logits asked of the last `rows`."""
        count = len(ids)
        self._batch.n_tokens = count
        self._tokens[:count] = ids
        self._positions[:count] = np.arange(position, position + count)
        self._wanted[:count] = 0
        self._wanted[count - rows : count] = 1
        return self._batch

    def free(self) -> None:
        """Give the memory back."""
        llama.llama_batch_free(self._batch)


def _load(file: Path) -> int:
    if not file.is_file():
        raise ModelError(f"there is no file {file}: check the path")
    model: int | None = llama.llama_model_load_from_file(str(file).encode(), llama.llama_model_default_params())
    if not model:
        raise ModelError(
            f"llama.cpp cannot load {file.name}: it is broken, or its architecture unknown; --log-level debug says more"
        )
    return model


def _declared() -> Any:
    """The shared library with what the package does not declare itself."""
    library: Any = llama._lib
    library.llama_kv_cache_seq_rm.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
    library.llama_kv_cache_seq_rm.restype = ctypes.c_bool
    library.llama_n_ctx_train.argtypes = [ctypes.c_void_p]
    library.llama_n_ctx_train.restype = ctypes.c_int32
    library.llama_model_is_recurrent.argtypes = [ctypes.c_void_p]
    library.llama_model_is_recurrent.restype = ctypes.c_bool
    library.llama_log_set.argtypes = [_LogCallback, ctypes.c_void_p]
    library.llama_log_set.restype = None
    return library


def _tell(level: int, text: bytes | None, data: int | None) -> None:
    """llama.cpp's own lines go to our log instead of stderr."""
    line = (text or b"").decode(errors="replace").strip()
    if line.strip("."):
        log.log(_LEVELS.get(level, logging.DEBUG), "llama.cpp: %s", line)


_LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_log_line = _LogCallback(_tell)  # lives as long as the library may call it
_library = _declared()


def _start_backend() -> None:
    _library.llama_log_set(_log_line, None)
    llama.llama_backend_init()
