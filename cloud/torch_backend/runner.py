"""The torch engine behind `acespec.cloud.runner.Runner`: exact on CPU, for Llama, Qwen2 and Qwen3 checkpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from acespec.cloud.draw_block import draw_block
from acespec.cloud.measure import quick_profile
from acespec.cloud.runner import Block, Drawn, check_blocks, pages_for
from acespec.cloud.torch_backend.config import ModelConfig, read_config
from acespec.cloud.torch_backend.kv_cache import KvCache, page_bytes
from acespec.cloud.torch_backend.loading import enough_pages, fitting_length, verdict
from acespec.cloud.torch_backend.model import Model
from acespec.cloud.torch_backend.numerics_id import numerics_id
from acespec.cloud.torch_backend.passes import Passed, forward
from acespec.cloud.torch_backend.self_check import PROBE_PAGES, probe_bits
from acespec.cloud.torch_backend.weights import Checkpoint
from acespec.proto.errors import UsageError
from acespec.proto.timing_profile import TimingProfile

ROOM_FOR = 64
"""Sequences of full length that the KV pages hold, unless that takes more than `KV_LIMIT` bytes."""
KV_LIMIT = 1 << 30

_log = logging.getLogger(__name__)


class TorchRunner:
    """A loaded model and its KV pages. One thread at a time may call it."""

    def __init__(
        self,
        model: Model,
        cache: KvCache,
        *,
        vocab_size: int,
        max_length: int,
        threads: int,
        name: str,
        exact: bool,
    ) -> None:
        """Wrap parts that are ready, and time them; `load` makes them from a model folder."""
        self._model, self._cache, self._threads = model, cache, threads
        self._vocab_size, self._max_length = vocab_size, max_length
        self._numerics_id, self._exact = name, exact
        self._timing = replace(quick_profile(self), name=name)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        vocab_size: int,
        max_length: int | None = None,
        threads: int = 1,
        kv_pages: int | None = None,
        kv_bytes: int | None = None,
        device: str = "cpu",
        dtype: str = "float32",
        allow_inexact: bool = False,
    ) -> Self:
        """Load a Hugging Face style folder, check its exactness and time it.

        Args:
            vocab_size: the tokenizer's vocabulary; ids beyond it are padding and never sampled.
            max_length: most positions of a sequence; the model's own limit if None or larger.
            threads: torch threads. More than the free cores cost five- to twentyfold.
            kv_pages: pages of the KV cache, all sessions together; None: as many as `kv_bytes` hold.
            kv_bytes: memory of the KV cache; see `default_pages` for None.

        Raises `ModelError` kinds for a folder that cannot be run, `UsageError` for a device or dtype that is not
        served or pages that do not fit, `NumericsError` if the self-check fails and `allow_inexact` is not set.
        """
        _refuse_unserved(device, dtype, threads)
        torch.set_num_threads(threads)
        began = time.perf_counter()
        config = read_config(folder)
        length = fitting_length(config, vocab_size, max_length)
        pages = kv_pages if kv_pages is not None else default_pages(config, length, kv_bytes)
        cache = KvCache(config, enough_pages(pages))
        with torch.inference_mode():
            model = Model(config, Checkpoint(folder, config.quantization), length)
            loaded = time.perf_counter()
            spare = KvCache(config, PROBE_PAGES)
            probe, wrong = probe_bits(lambda blocks: forward(model, spare, blocks).logits, length, vocab_size)
            checked = time.perf_counter()
        faults = [f"no row rule fits layer shapes {model.rules.failed}"] if model.rules.failed else []
        faults += [f"logits differ {wrong}"] if wrong else []
        exact = verdict(faults, "try another thread count or torch version", allow_inexact)
        name = numerics_id(folder, model, vocab_size, threads, probe)
        _log.info("loaded %s in %.1f s, checked in %.1f s", name, loaded - began, checked - loaded)
        return cls(model, cache, vocab_size=vocab_size, max_length=length, threads=threads, name=name, exact=exact)

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def max_length(self) -> int:
        return self._max_length

    @property
    def pages(self) -> int:
        return self._cache.pages

    @property
    def page_bytes(self) -> int:
        """Memory of one KV page, all layers together."""
        return page_bytes(self._model.config)

    @property
    def numerics_id(self) -> str:
        return self._numerics_id

    @property
    def exact(self) -> bool:
        return self._exact

    def kv_bytes(self) -> int:
        """Memory that the KV pages take once all have been used."""
        return self._cache.nbytes

    def row_rules(self) -> list[tuple[int, int, int, int]]:
        """(inputs, outputs, multiple, most) of each layer shape: how rows are padded and cut."""
        return self._model.rules.table()

    def timing(self) -> TimingProfile:
        """See `acespec.cloud.runner.Runner.timing`; measured at load."""
        return self._timing

    def step(self, blocks: Sequence[Block]) -> list[Drawn]:
        """See `acespec.cloud.runner.Runner.step`."""
        passed = self._forward(blocks)
        rows = (logits.numpy() for logits in passed.logits)
        drawn = [draw_block(block, logits, self._vocab_size) for block, logits in zip(blocks, rows, strict=True)]
        with torch.inference_mode():
            for block, placed, done in zip(blocks, passed.placed, drawn, strict=True):
                if block.parents:
                    placed.relay(self._cache, block.path(done.rows[-1]))
        return drawn

    def logits(self, blocks: Sequence[Block]) -> list[NDArray[np.float32]]:
        """Run the step; float32[len(tokens) - sample_from, vocab rows] for each block, nothing drawn.

        Of a tree, the chain of first children stays in the pages.
        """
        return [rows.numpy() for rows in self._forward(blocks).logits]

    def _forward(self, blocks: Sequence[Block]) -> Passed:
        check_blocks(blocks, self.pages, self._vocab_size, self._max_length)
        if torch.get_num_threads() != self._threads:
            # The setting is per calling thread, and the number of threads is part of the numerics.
            torch.set_num_threads(self._threads)
        with torch.inference_mode():
            return forward(self._model, self._cache, blocks)


def default_pages(config: ModelConfig, max_length: int, kv_bytes: int | None = None) -> int:
    """Pages in `kv_bytes` of memory; without that, room for `ROOM_FOR` full sequences within `KV_LIMIT`, but always for
    one and a little more."""
    if kv_bytes is not None:
        return kv_bytes // page_bytes(config)
    one = pages_for(max_length)
    return max(one + 1, min(ROOM_FOR * one, KV_LIMIT // page_bytes(config)))


def _refuse_unserved(device: str, dtype: str, threads: int) -> None:
    if device != "cpu":
        raise UsageError(f"device {device!r} is not one of this engine; use cpu, or --device cuda")
    if dtype != "float32":
        raise UsageError(f"dtype {dtype!r} is not served on cpu; use float32")
    if threads < 1:
        raise UsageError(f"{threads} threads cannot run a model; use at least 1")
