"""The torch engine behind `acespec.cloud.runner.Runner`: exact on CPU, for Llama, Qwen2 and Qwen3 checkpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from acespec.cloud.runner import Block, check_block, draw
from acespec.cloud.torch_backend.config import read_config
from acespec.cloud.torch_backend.cost_curve import measured_curve
from acespec.cloud.torch_backend.kv_cache import KvCache
from acespec.cloud.torch_backend.model import Model
from acespec.cloud.torch_backend.numerics_id import numerics_id
from acespec.cloud.torch_backend.passes import forward
from acespec.cloud.torch_backend.self_check import probe_bits
from acespec.cloud.torch_backend.weights import Checkpoint
from acespec.proto.errors import InvalidRequest, NumericsError, UnsupportedModel, UsageError
from acespec.proto.sampling import sample
from acespec.proto.sampling_params import SamplingParams

MAX_SLOTS = 64
CONTEXT_FOR_COST = 32

_log = logging.getLogger(__name__)


class TorchRunner:
    """A loaded model and its KV slots. One thread at a time may call it."""

    def __init__(self, model: Model, cache: KvCache, *, vocab_size: int, threads: int, name: str, exact: bool) -> None:
        """Wrap parts that are ready; `load` makes them from a model folder."""
        self._model, self._cache, self._threads = model, cache, threads
        self._vocab_size, self._numerics_id, self._exact = vocab_size, name, exact
        self._curve = self._measured_curve()

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        vocab_size: int,
        max_length: int | None = None,
        threads: int = 1,
        max_slots: int = MAX_SLOTS,
        device: str = "cpu",
        dtype: str = "float32",
        allow_inexact: bool = False,
    ) -> Self:
        """Load a Hugging Face style folder, check its exactness and time it.

        Args:
            vocab_size: the tokenizer's vocabulary; ids beyond it are padding and never sampled.
            max_length: positions a slot may hold; the model's own limit if None or larger.
            threads: torch threads. More than the free cores cost five- to twentyfold.

        Raises `ModelError` kinds for a folder that cannot be run, `UsageError` for a device or dtype that is not
        served, `NumericsError` if the self-check fails and `allow_inexact` is not set.
        """
        _refuse_unserved(device, dtype, threads)
        torch.set_num_threads(threads)
        began = time.perf_counter()
        config = read_config(folder)
        if vocab_size > config.vocab_rows:
            raise UnsupportedModel(
                f"the tokenizer has {vocab_size} ids but the model only {config.vocab_rows}; "
                "use the tokenizer that came with the model"
            )
        length = min(max_length or config.max_length, config.max_length)
        with torch.inference_mode():
            model = Model(config, Checkpoint(folder), length)
            cache = KvCache(config, length, max_slots)
            loaded = time.perf_counter()
            probe, wrong = probe_bits(model, KvCache(config, length, 3), vocab_size)
            checked = time.perf_counter()
        exact = _verdict(model, wrong, allow_inexact)
        name = numerics_id(folder, model, vocab_size, threads, probe)
        _log.info("loaded %s in %.1f s, checked in %.1f s", name, loaded - began, checked - loaded)
        return cls(model, cache, vocab_size=vocab_size, threads=threads, name=name, exact=exact)

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def max_length(self) -> int:
        return self._cache.max_length

    @property
    def numerics_id(self) -> str:
        return self._numerics_id

    @property
    def exact(self) -> bool:
        return self._exact

    def allocate(self) -> int:
        return self._cache.allocate()

    def release(self, slot: int) -> None:
        self._cache.release(slot)

    def length(self, slot: int) -> int:
        return self._cache.slot(slot).length

    def kv_bytes(self) -> int:
        """Memory that the KV slots take now."""
        return self._cache.bytes_used()

    def row_rules(self) -> list[tuple[int, int, int, int]]:
        """(inputs, outputs, multiple, most) of each layer shape: how rows are padded and cut."""
        return self._model.rules.table()

    def cost_curve(self) -> list[tuple[int, float]]:
        return list(self._curve)

    def step(self, blocks: Sequence[Block]) -> list[tuple[int, ...]]:
        """See `acespec.cloud.runner.Runner.step`."""
        logits = self.logits(blocks)
        return [self._drawn(block, rows) for block, rows in zip(blocks, logits, strict=True)]

    def logits(self, blocks: Sequence[Block]) -> list[NDArray[np.float32]]:
        """Run the step; float32[len(tokens) - sample_from, vocab rows] for each block, nothing drawn."""
        self._check(blocks)
        if torch.get_num_threads() != self._threads:
            # The setting is per calling thread, and the number of threads is part of the numerics.
            torch.set_num_threads(self._threads)
        with torch.inference_mode():
            return [rows.numpy() for rows in forward(self._model, self._cache, blocks)]

    def _drawn(self, block: Block, logits: NDArray[np.float32]) -> tuple[int, ...]:
        penalised = _reads_prefix(block.params)

        def sample_row(row: int) -> int:
            return sample(
                logits[row - block.sample_from],
                block.params,
                block.seed,
                block.start + row + 1,
                prefix=block.context(row) if penalised else (),
                prompt_len=block.prompt_len,
                vocab_size=self._vocab_size,
            )

        return draw(block, sample_row)

    def _check(self, blocks: Sequence[Block]) -> None:
        slots = [block.slot for block in blocks]
        if not blocks or len(set(slots)) < len(slots):
            raise InvalidRequest("a step needs at least one block and no slot twice")
        for block in blocks:
            if block.slot not in self._cache:
                raise InvalidRequest(f"slot {block.slot} is not allocated; allocate one first")
            check_block(block, self.length(block.slot), self._vocab_size, self.max_length)

    def _measured_curve(self) -> list[tuple[int, float]]:
        """Steps that sample nothing but read out all rows, on a short context."""
        context = min(CONTEXT_FOR_COST, self.max_length // 2)
        scratch = self._cache.allocate()

        def run(rows: int) -> None:
            self.logits([Block(scratch, context, (0,) * rows, (0,) * context, 0, SamplingParams(), 0, 0)])

        self.logits([Block(scratch, 0, (0,) * context, (), context, SamplingParams(), 0, 0)])
        curve = measured_curve(run, self.max_length - context)
        self.release(scratch)
        return curve


def _reads_prefix(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0


def _refuse_unserved(device: str, dtype: str, threads: int) -> None:
    if device != "cpu":
        raise UsageError(f"device {device!r} is not served by this version; use cpu")
    if dtype != "float32":
        raise UsageError(f"dtype {dtype!r} is not served on cpu; use float32")
    if threads < 1:
        raise UsageError(f"{threads} threads cannot run a model; use at least 1")


def _verdict(model: Model, wrong: str | None, allow_inexact: bool) -> bool:
    faults = [f"no row rule fits layer shapes {model.rules.failed}"] if model.rules.failed else []
    faults += [f"logits differ {wrong}"] if wrong else []
    if not faults:
        return True
    message = f"this machine does not keep bits equal ({'; '.join(faults)}); try another thread count or torch version"
    if not allow_inexact:
        raise NumericsError(message)
    _log.warning("%s; going on inexact, as asked", message)
    return False
