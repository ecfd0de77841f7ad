"""The MLX drafter: any checkpoint folder that mlx-lm loads and whose cache can be rolled back."""

from __future__ import annotations

import os
from pathlib import Path

from acespec.edge.drafters.lm_drafter import LmDrafter
from acespec.edge.drafters.logit_source import LogitSource
from acespec.proto.errors import UsageError


class MlxDrafter(LmDrafter):
    """A model in MLX.

    Raises (from `begin`):
        ModelError: the folder lacks its weights.
        UnsupportedModel: mlx-lm does not know the architecture, or its state cannot be rolled back.
        UsageError: MLX is installed but does not load.
    """

    def __init__(self, folder: Path, max_kv: int = 4096) -> None:
        super().__init__("mlx", lambda: load_mlx(folder, max_kv))


def load_mlx(folder: Path, max_kv: int) -> LogitSource:
    """The model in `folder`, ready to be asked; errors as for `MlxDrafter`."""
    # mlx-lm imports transformers, which would advise on stderr to install a framework that is not needed here.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    try:
        from acespec.edge.drafters.mlx_state import MlxState
    except ImportError as error:
        raise UsageError(f"MLX does not load here: {error}; repair it or use --drafter ngram") from error
    return MlxState(folder, max_kv)
