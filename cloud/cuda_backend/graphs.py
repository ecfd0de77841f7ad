"""Passes of a few fixed sizes, recorded once each as CUDA graphs: some 300 launches cost about as much as one.

Without a GPU the kernels are simply called.
"""

from __future__ import annotations

import logging
import time

import torch

from acespec.cloud.cuda_backend.forward import Pipeline
from acespec.cloud.cuda_backend.limits import bucket

_log = logging.getLogger(__name__)


class Graphs:
    """Runs a pipeline, by a graph where there is a GPU."""

    def __init__(self, pipeline: Pipeline, device: torch.device) -> None:
        self._pipeline, self._device = pipeline, device
        self._recorded: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}

    def run(self, rows: int, sampled: int) -> None:
        """Start a pass whose inputs are on the device, padded to the next sizes for which there is a graph."""
        if self._device.type != "cuda":
            self._pipeline.run(rows, sampled)
            return
        rows, sampled = bucket(rows), bucket(sampled)
        graph = self._recorded.get((rows, sampled))
        if graph is None:
            graph = self._recorded[rows, sampled] = self._record(rows, sampled)
        graph.replay()

    def _record(self, rows: int, sampled: int) -> torch.cuda.CUDAGraph:
        began = time.perf_counter()
        # The first call compiles and loads; that must not happen while a graph is recorded. A pass may be repeated: it
        # writes the same values again.
        self._pipeline.run(rows, sampled)
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._pipeline.run(rows, sampled)
        _log.debug("recorded %d rows, %d sampled in %.2f s", rows, sampled, time.perf_counter() - began)
        return graph
