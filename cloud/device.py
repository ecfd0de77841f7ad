"""Which device a target runs on, and the runner that serves it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from acespec.cloud.runner import Runner
from acespec.proto.errors import UsageError


class Device(StrEnum):
    """What `--device` takes."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """How a target is loaded.

    Attributes:
        threads: CPU threads; the GPU does not care.
        kv_bytes: memory of the KV pages; None for a default.
        allow_inexact: go on although the self-check failed.
    """

    device: Device = Device.AUTO
    threads: int = 1
    max_length: int | None = None
    kv_bytes: int | None = None
    allow_inexact: bool = False


def load_runner(folder: Path, vocab_size: int, options: RunnerOptions) -> Runner:
    """Load a model folder on the device that was asked for; `auto` takes a GPU if there is one that we can use.

    Raises `UsageError` for a device that is not there, `ModelError` kinds, `NumericsError`.
    """
    if options.device is Device.CUDA or (options.device is Device.AUTO and gpu_fault() is None):
        return _on_gpu(folder, vocab_size, options)
    from acespec.cloud.torch_backend.runner import TorchRunner

    return TorchRunner.load(
        folder,
        vocab_size=vocab_size,
        threads=options.threads,
        max_length=options.max_length,
        kv_bytes=options.kv_bytes,
        allow_inexact=options.allow_inexact,
    )


def gpu_fault() -> str | None:
    """Why no GPU can be used, with what to do about it; None if one can."""
    import torch

    if not torch.cuda.is_available():
        return (
            "torch sees no CUDA device: install a CUDA build of torch and see what nvidia-smi says, or use --device cpu"
        )
    if find_spec("triton") is None:
        return "triton is not installed: run pip install triton, or use --device cpu"
    if torch.cuda.get_device_capability() < (8, 0):
        return "the GPU is older than compute capability 8.0, which has no bf16 matrix units: use --device cpu"
    return None


def _on_gpu(folder: Path, vocab_size: int, options: RunnerOptions) -> Runner:
    fault = gpu_fault()
    if fault is not None:
        raise UsageError(f"--device cuda: {fault}")
    from acespec.cloud.cuda_backend.runner import CudaRunner

    return CudaRunner.load(
        folder,
        vocab_size=vocab_size,
        max_length=options.max_length,
        kv_bytes=options.kv_bytes,
        allow_inexact=options.allow_inexact,
    )
