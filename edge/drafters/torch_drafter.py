"""The torch drafter: any causal language model that transformers runs, on a CPU or an accelerator."""

from __future__ import annotations

from pathlib import Path

from acespec.edge.drafters.lm_drafter import LmDrafter
from acespec.edge.drafters.logit_source import LogitSource
from acespec.proto.errors import UsageError


class TorchDrafter(LmDrafter):
    """A model in torch; errors from `begin` are those of `TorchState`, and UsageError if torch does not load here."""

    def __init__(self, folder: Path, max_kv: int = 4096, threads: int = 1) -> None:
        super().__init__("torch", lambda: load_torch(folder, max_kv, threads))


def load_torch(folder: Path, max_kv: int, threads: int = 1) -> LogitSource:
    """The model in `folder`, ready to be asked; errors as for `TorchDrafter`."""
    try:
        from acespec.edge.drafters.torch_state import TorchState
    except ImportError as error:
        raise UsageError(f"torch or transformers does not load here: {error}; repair it or use --drafter ngram") from (
            error
        )
    return TorchState(folder, max_kv, threads)
