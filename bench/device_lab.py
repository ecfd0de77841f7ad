"""Where the device's sections work: which device, which sizes, and how a time is taken on it."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from acespec.bench.device_sizes import LLAMA_8B, TINY, Sizes

if TYPE_CHECKING:
    from acespec.cloud.cuda_backend.runner import CudaRunner

REPLAYS = 21
WAKE_S = 0.7
LEAST_LAUNCHES = 32
"""Launches in a timed graph: the start of a replay then counts for little."""
WORKING_SETS = 5
"""How many times the second-level cache what is read passes by before it is read again."""

Launch = Callable[[], object]


def prepare() -> None:
    """Choose the interpreter where there is no GPU; to be called before a kernel is imported."""
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
        torch.set_num_threads(1)


@dataclass(slots=True)
class Lab:
    """One process's device.

    Attributes:
        copy_rate: bytes a second of a copy inside the device's memory, those read and those written; None in the
            interpreter, as are all times.
        runners: the model that was built last, by kind of weights.
    """

    device: torch.device
    sizes: Sizes
    generator: torch.Generator
    profile_out: Path | None = None
    copy_rate: float | None = None
    runners: dict[str, CudaRunner] = field(default_factory=dict)

    @classmethod
    def here(cls, profile_out: Path | None = None) -> Lab:
        """The GPU if there is one and the interpreter was not asked for, else the interpreter."""
        gpu = os.environ.get("TRITON_INTERPRET") != "1"
        device = torch.device("cuda" if gpu else "cpu")
        lab = cls(device, LLAMA_8B if gpu else TINY, torch.Generator(device).manual_seed(2), profile_out)
        lab.copy_rate = lab._measured_copy_rate()
        return lab

    @property
    def timed(self) -> bool:
        """Whether times mean anything here."""
        return self.device.type == "cuda"

    @contextmanager
    def fixed_order(self) -> Iterator[None]:
        """Without gradients; the interpreter's matrix product adds in a fixed order, as a GPU's does."""
        with torch.inference_mode():
            if self.timed:
                yield
                return
            from acespec.kernels.interpreter import fixed_order_dot

            with fixed_order_dot():
                yield

    def normal(self, *shape: int, dtype: torch.dtype = torch.bfloat16, scale: float = 1.0) -> torch.Tensor:
        """Normal random numbers, fresh at every call."""
        return torch.randn(shape, generator=self.generator, device=self.device, dtype=dtype).mul_(scale)

    def poison(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """NaN: what was not written shows."""
        return torch.full(shape, math.nan, device=self.device, dtype=dtype)

    def rotation(self, nbytes: int) -> int:
        """How many sets of `nbytes` are several times the second-level cache."""
        if not self.timed:
            return 1
        cache: int = torch.cuda.get_device_properties(self.device).L2_cache_size
        return -(-WORKING_SETS * cache // nbytes)

    def seconds(self, launches: Sequence[Launch]) -> float | None:
        """Seconds of one launch; those given follow one another in a graph. None in the interpreter: each runs once."""
        for launch in launches:
            launch()
        if not self.timed:
            return None
        torch.cuda.synchronize()
        rounds = -(-LEAST_LAUNCHES // len(launches))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for launch in [*launches] * rounds:
                launch()
        seconds = self.event_seconds(graph.replay)
        return None if seconds is None else seconds / (rounds * len(launches))

    def event_seconds(self, start: Launch) -> float | None:
        """Seconds on the device of what `start` starts there, median of many; None in the interpreter."""
        if not self.timed:
            start()
            return None
        for _ in range(3):
            start()
        events = [(_event(), _event()) for _ in range(REPLAYS)]
        for before, after in events:
            before.record()
            start()
            after.record()
        torch.cuda.synchronize()
        return float(statistics.median(before.elapsed_time(after) for before, after in events)) / 1e3

    def wall_seconds(self, call: Launch) -> float | None:
        """Seconds of a call that waits for its result, median of many; None in the interpreter."""
        if not self.timed:
            return None
        seconds = []
        for _ in range(3 + REPLAYS):
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
        return statistics.median(seconds[3:])

    def floor(self, nbytes: float) -> float | None:
        """Seconds in which a copy would move so many bytes."""
        return None if self.copy_rate is None else nbytes / self.copy_rate

    def _wake(self, start: Launch) -> None:
        """Keep the device busy until its clocks are up."""
        until = time.perf_counter() + (WAKE_S if self.timed else 0.0)
        while time.perf_counter() < until:
            start()
            torch.cuda.synchronize()

    def _measured_copy_rate(self) -> float | None:
        source = torch.ones(self.sizes.copy_bytes, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        self._wake(lambda: target.copy_(source))
        seconds = self.event_seconds(lambda: target.copy_(source))
        return None if seconds is None else 2 * source.nbytes / seconds


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def differing(a: torch.Tensor, b: torch.Tensor) -> int:
    """Elements whose bits differ; tells 0 from -0 and one NaN from another."""
    integers = {2: torch.int16, 4: torch.int32}[a.element_size()]
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    return int((a.contiguous().view(integers) != b.contiguous().view(integers)).sum())


def relative_error(found: torch.Tensor, right: torch.Tensor) -> float:
    """|found - right| / |right|, by Euclid's norm in float64; NaN if there is one."""
    apart = torch.linalg.vector_norm(found.double() - right.double())
    return float(apart / torch.linalg.vector_norm(right.double()))


def percent(part: float | None, whole: float | None) -> float | None:
    """part / whole in percent, if both are known."""
    return None if part is None or whole is None else 100 * part / whole


def micro(seconds: float | None) -> float | None:
    """Microseconds."""
    return None if seconds is None else 1e6 * seconds


def milli(seconds: float | None) -> float | None:
    """Milliseconds."""
    return None if seconds is None else 1e3 * seconds


def in_words(value: float | None, unit: str, digits: int = 2) -> str:
    """Such as `3.14 ms`; `-` if it is not known."""
    return "-" if value is None else f"{value:.{digits}f} {unit}"
