"""The GGUF drafter: a quantised model in llama.cpp, the quickest on a laptop without a usable GPU."""

from __future__ import annotations

from pathlib import Path

from acespec.edge.drafters.lm_drafter import LmDrafter
from acespec.edge.drafters.logit_source import LogitSource
from acespec.proto.errors import UsageError


class GgufDrafter(LmDrafter):
    """A model in llama.cpp; errors from `begin` are those of `GgufState`, and UsageError if it does not load here."""

    def __init__(self, file: Path, max_kv: int = 4096, threads: int = 1) -> None:
        super().__init__("gguf", lambda: load_gguf(file, max_kv, threads))


def load_gguf(file: Path, max_kv: int, threads: int = 1) -> LogitSource:
    """The model in `file`, ready to be asked; errors as for `GgufDrafter`."""
    try:
        from acespec.edge.drafters.gguf_state import GgufState
    except (ImportError, OSError, AttributeError) as error:
        # The wheel's library may be built for another machine, or another version may lack a function.
        raise UsageError(f"llama.cpp does not load here: {error}; repair it or use --drafter ngram") from error
    return GgufState(file, max_kv, threads)
