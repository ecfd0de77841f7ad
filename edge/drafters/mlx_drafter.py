"""The MLX drafter: a small language model that guesses what the target will sample.

Its own logits go through the same pipeline as the target's, with the same noise, so that at any temperature it proposes
what the target would draw if it thought alike.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from acespec.edge.drafters.base import Candidate, QuietDrafter, TurnContext
from acespec.proto import sampling
from acespec.proto.errors import UsageError

if TYPE_CHECKING:
    from acespec.edge.drafters.mlx_state import MlxState


class MlxDrafter(QuietDrafter):
    """Any checkpoint folder that mlx-lm loads and whose cache can be rolled back.

    The model is loaded by the first `begin`, in the thread that will use it.

    Raises (from `begin`):
        ModelError: the folder lacks its weights.
        UnsupportedModel: mlx-lm does not know the architecture, or its state cannot be rolled back.
        UsageError: MLX is installed but does not load.
    """

    name = "mlx"

    def __init__(self, folder: Path, max_kv: int = 4096) -> None:
        super().__init__()
        self._folder = folder
        self._max_kv = max_kv
        self._state: MlxState | None = None
        self._turn: TurnContext | None = None

    @property
    def cached(self) -> int:
        """Entries in the model's KV cache."""
        return self._state.cached if self._state is not None else 0

    def begin(self, turn: TurnContext) -> None:
        """Starts a turn; the cache is kept and rolled back to what still agrees."""
        if self._state is None:
            self._state = _loaded(self._folder, self._max_kv)
        self._turn = turn

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        """The top k of log q plus noise, from one forward pass over the ids that are new since the last path."""
        if self._state is None or self._turn is None:
            return []
        logits = self._state.logits_after(path, self.should_stop)
        if logits is None:
            return []
        turn = self._turn
        ranked = sampling.propose(
            logits,
            turn.params,
            turn.seed,
            len(path),
            k,
            prefix=path,
            prompt_len=turn.prompt_len,
            vocab_size=turn.vocab_size,
        )
        return [Candidate(token, probability, "lm") for token, probability in ranked]

    def close(self) -> None:
        """Frees the model and its cache."""
        self._state = None
        self._turn = None


def _loaded(folder: Path, max_kv: int) -> MlxState:
    # mlx-lm imports transformers, which would advise on stderr to install a framework that is not needed here.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    try:
        from acespec.edge.drafters.mlx_state import MlxState
    except ImportError as error:
        raise UsageError(f"MLX does not load here: {error}; repair it or use --drafter ngram") from error
    return MlxState(folder, max_kv)
