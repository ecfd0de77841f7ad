"""Which runtime runs a draft model, what has to be installed for it, and where its files and tokenizer are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from acespec.edge.drafters.gguf_drafter import GgufDrafter
from acespec.edge.drafters.lm_drafter import LmDrafter
from acespec.edge.drafters.logit_source import LogitSource
from acespec.edge.drafters.mlx_drafter import MlxDrafter
from acespec.edge.drafters.torch_drafter import TorchDrafter
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import UsageError

PACKAGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"mlx": ("mlx", "mlx_lm"), "gguf": ("ik_llama_cpp",), "torch": ("torch", "transformers")}
)
"""Runtime -> the modules it needs; the extra that brings them has the runtime's name."""
RUNTIMES = tuple(PACKAGES)
DEFAULT_KV = 4096


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A language model that is on this machine, not yet loaded.

    Attributes:
        name: as the user gave it.
        runtime: one of `RUNTIMES`.
        place: a GGUF file, or a Hugging Face style folder.
        max_kv: longest window in ids.
        threads: CPU threads, where the runtime has a choice.
    """

    name: str
    runtime: str
    place: Path
    max_kv: int = DEFAULT_KV
    threads: int = 1

    def drafter(self) -> LmDrafter:
        """It as a drafter for a target of the same tokenizer."""
        match self.runtime:
            case "mlx":
                return MlxDrafter(self.place, self.max_kv)
            case "gguf":
                return GgufDrafter(self.place, self.max_kv, self.threads)
            case _:
                return TorchDrafter(self.place, self.max_kv, self.threads)

    def load(self) -> LogitSource:
        """Its logits. Call it in the thread that will use them; errors as for the runtime's drafter."""
        return self.drafter().load()

    def tokenizer(self) -> Tokenizer:
        """Its tokenizer. Raises ModelError if there is none that can be read."""
        if self.runtime == "gguf":
            from acespec.models.gguf_models import gguf_tokenizer

            return gguf_tokenizer(self.place)
        return Tokenizer.load(self.place)


def find_language_model(
    runtime: str, name: str, *, max_kv: int = DEFAULT_KV, threads: int = 1, offline: bool = False
) -> LanguageModel:
    """The model `name` for a runtime; fetched where it is not here yet, unless `offline`.

    Raises:
        UsageError: the runtime is unknown or not installed; the message says what to install.
        ModelError: the model cannot be had.
    """
    require_runtime(runtime)
    if runtime == "gguf":
        from acespec.models.gguf_models import gguf_file

        place = gguf_file(name, offline=offline)
    else:
        from acespec.models.store import resolve

        place = resolve(name, offline=offline, any_architecture=True)
    return LanguageModel(name, runtime, place, max_kv, threads)


def require_runtime(runtime: str) -> None:
    """Raise UsageError unless `runtime` is known and installed."""
    if runtime not in PACKAGES:
        raise UsageError(f"unknown runtime {runtime!r}: choose one of {', '.join(RUNTIMES)}")
    missing = [package for package in PACKAGES[runtime] if find_spec(package) is None]
    if missing:
        packages = " and ".join(missing).replace("_", "-")
        raise UsageError(f"drafter {runtime!r} needs {packages}: run pip install 'acespec[{runtime}]'")
