"""The engine for GPUs behind `acespec.cloud.runner.Runner`: bf16 or 4-bit weights, Triton kernels, CUDA graphs."""

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

from acespec.cloud.cuda_backend.forward import Pipeline
from acespec.cloud.cuda_backend.graphs import Graphs
from acespec.cloud.cuda_backend.kv_pool import KvPool, page_bytes
from acespec.cloud.cuda_backend.layout import BlockLayout, PassLayout, lay_out
from acespec.cloud.cuda_backend.limits import BUCKETS, PassLimits
from acespec.cloud.cuda_backend.numerics_id import numerics_id
from acespec.cloud.cuda_backend.passes import cut
from acespec.cloud.cuda_backend.results import Results
from acespec.cloud.cuda_backend.tile_check import wide_agrees
from acespec.cloud.cuda_backend.weights import Weights, load_weights
from acespec.cloud.cuda_backend.workspace import Inputs, Workspace
from acespec.cloud.draw_block import draw_block
from acespec.cloud.measure import quick_profile
from acespec.cloud.runner import PAGE, PREFILL_CHUNK, Block, Drawn, check_blocks, pages_for
from acespec.cloud.torch_backend.config import ModelConfig, read_config
from acespec.cloud.torch_backend.loading import enough_pages, fitting_length, verdict
from acespec.cloud.torch_backend.self_check import PROBE_PAGES, probe_bits
from acespec.cloud.torch_backend.weights import Checkpoint
from acespec.kernels.attention_plan import plan_attention
from acespec.kernels.move_kv import move_kv
from acespec.proto.errors import UsageError
from acespec.proto.timing_profile import TimingProfile

SHARE_OF_FREE = 0.85
"""Of the device's memory that weights and buffers leave, what KV pages may take."""

UNTIMED = TimingProfile("untimed", ((1, 1.0),), 0.0, 1.0, "before the first measurement")

Logits = NDArray[np.float32]

_log = logging.getLogger(__name__)


class CudaRunner:
    """A loaded model on one device. One thread at a time may call it."""

    def __init__(self, weights: Weights, pool: KvPool, *, vocab_size: int, max_length: int, wide: bool | None) -> None:
        """Wrap loaded weights.

        Args:
            wide: whether the wide tiles may serve many rows; None finds out.
        """
        device = pool.kv.device
        self._device, self._pool, self._weights = device, pool, weights
        self._vocab_size, self._max_length = vocab_size, max_length
        self._limits = PassLimits(pages=pages_for(max_length))
        self._inputs = Inputs(self._limits, device)
        self._space = Workspace(weights, self._limits, device)
        self._results = Results(self._space, device)
        self.wide = wide_agrees(weights) if wide is None else wide
        pipeline = Pipeline(weights, pool, self._inputs, self._space, vocab_size, self.wide)
        self._graphs = Graphs(pipeline, device)
        self._numerics_id, self._exact, self._timing = "", False, UNTIMED

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        vocab_size: int,
        max_length: int | None = None,
        kv_pages: int | None = None,
        kv_bytes: int | None = None,
        device: str = "cuda",
        allow_inexact: bool = False,
    ) -> Self:
        """Load a Hugging Face style folder, check its exactness and time it.

        Args:
            vocab_size: the tokenizer's vocabulary; ids beyond it are padding and never sampled.
            max_length: most positions of a sequence; the model's own limit if None or larger.
            kv_pages: pages of the KV pool; None: as many as `kv_bytes` hold.
            kv_bytes: memory of the KV pool; None: most of what is left on the device.
            device: a CUDA device. `cpu` runs the same kernels in Triton's interpreter, or their references: for tests.

        Raises `ModelError` kinds for a folder that cannot be run, `UsageError` for a device or pages that cannot be
        had, `NumericsError` if the self-check fails and `allow_inexact` is not set.
        """
        began = time.perf_counter()
        config, where = read_config(folder), _device(device)
        length = fitting_length(config, vocab_size, max_length)
        with torch.inference_mode():
            weights = load_weights(config, Checkpoint(folder, config.quantization), length, where)
            pages = kv_pages if kv_pages is not None else default_pages(config, length, where, kv_bytes)
            pool = KvPool(config, max(enough_pages(pages), PROBE_PAGES), PassLimits().rows, where)
            runner = cls(weights, pool, vocab_size=vocab_size, max_length=length, wide=None)
            loaded = time.perf_counter()
            probe, wrong = probe_bits(runner._probe, length, vocab_size)
        runner._settle(numerics_id(folder, weights, vocab_size, runner.wide, probe, where), wrong, allow_inexact)
        checked = time.perf_counter()
        _log.info("loaded %s in %.1f s, checked in %.1f s", runner.numerics_id, loaded - began, checked - loaded)
        return runner

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def max_length(self) -> int:
        return self._max_length

    @property
    def pages(self) -> int:
        return self._pool.pages

    @property
    def page_bytes(self) -> int:
        """Memory of one KV page, all layers together."""
        return page_bytes(self._weights.config)

    @property
    def numerics_id(self) -> str:
        return self._numerics_id

    @property
    def exact(self) -> bool:
        return self._exact

    def kv_bytes(self) -> int:
        """Memory of the KV pool."""
        return self._pool.kv.nbytes

    def timing(self) -> TimingProfile:
        """See `acespec.cloud.runner.Runner.timing`; measured at load."""
        return self._timing

    def step(self, blocks: Sequence[Block]) -> list[Drawn]:
        """See `acespec.cloud.runner.Runner.step`."""
        self._check(blocks)
        drawn: list[Drawn] = []
        with torch.inference_mode():
            for part in cut(blocks, self._limits, self._vocab_size):
                layout = self._run(part)
                done = [self._drawn(number, laid) for number, laid in enumerate(layout.blocks)]
                self._bring_home(layout, done)
                drawn += done
        return drawn

    def logits(self, blocks: Sequence[Block]) -> list[Logits]:
        """Run the step; float32[len(tokens) - sample_from, vocab rows] for each block, nothing drawn.

        Of a tree, the chain of first children stays in the pages.
        """
        self._check(blocks)
        rows: list[Logits] = []
        with torch.inference_mode():
            for part in cut(blocks, self._limits, self._vocab_size, keep_all=True):
                layout = self._run(part, keep_all=True)
                rows += [self._results.logits(laid.kept, laid.samples) for laid in layout.blocks]
        return rows

    def _check(self, blocks: Sequence[Block]) -> None:
        check_blocks(blocks, self.pages, self._vocab_size, self._max_length)

    def _run(self, blocks: Sequence[Block], *, keep_all: bool = False) -> PassLayout:
        layout = lay_out(blocks, self._pool.first_spare, self._vocab_size, keep_all=keep_all)
        config = self._weights.config
        spans = [laid.span() for laid in layout.blocks]
        plan = plan_attention(
            spans, group=config.group, kv_heads=config.kv_heads, page=PAGE, max_parts=self._limits.parts
        )
        self._inputs.send(layout, plan)
        self._graphs.run(len(layout.tokens), len(layout.gather))
        self._results.fetch(len(blocks))
        return layout

    def _drawn(self, number: int, laid: BlockLayout) -> Drawn:
        if not laid.samples or not laid.on_host:
            return self._results.drawn(number) if laid.samples else Drawn((), ())
        return draw_block(laid.block, self._results.logits(laid.kept, laid.samples), self._vocab_size)

    def _bring_home(self, layout: PassLayout, drawn: Sequence[Drawn]) -> None:
        """Move keys and values of accepted branches to where their positions are."""
        moves = [
            move
            for laid, done in zip(layout.blocks, drawn, strict=True)
            if laid.block.parents
            for move in laid.moves(laid.block.path(done.rows[-1]))
        ]
        if moves:
            source, target = torch.tensor(moves, dtype=torch.int32).T.contiguous().to(self._device)
            move_kv(self._pool.kv, source, target)

    def _probe(self, blocks: Sequence[Block]) -> list[torch.Tensor]:
        return [torch.from_numpy(rows) for rows in self.logits(blocks)]

    def _settle(self, name: str, wrong: str | None, allow_inexact: bool) -> None:
        faults = [f"logits differ {wrong}"] if wrong else []
        self._exact = verdict(faults, "try another version of triton", allow_inexact)
        self._numerics_id = name
        if not self.wide:
            _log.info("wide and narrow tiles differ in bits here: the narrow ones serve all steps")
        self._record()
        self._timing = replace(quick_profile(self), name=name)

    def _record(self) -> None:
        """Make the graphs of the commonest passes before somebody waits for them."""
        if self._device.type != "cuda":
            return
        with torch.inference_mode():
            for rows, sampled in (*((size, size) for size in BUCKETS), (PREFILL_CHUNK, 0), (PREFILL_CHUNK, BUCKETS[0])):
                self._inputs.rest()
                self._graphs.run(rows, sampled)


def default_pages(config: ModelConfig, max_length: int, device: torch.device, kv_bytes: int | None = None) -> int:
    """Pages in `kv_bytes` of memory, or in most of what is free on the device; on a CPU, for about one sequence."""
    if kv_bytes is None and device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        kv_bytes = int(SHARE_OF_FREE * free)
    return pages_for(max_length) + 1 if kv_bytes is None else kv_bytes // page_bytes(config)


def _device(name: str) -> torch.device:
    if name != "cpu" and not torch.cuda.is_available():
        raise UsageError("no CUDA device is to be seen (nvidia-smi shows what the driver knows); use --device cpu")
    return torch.device(name)
