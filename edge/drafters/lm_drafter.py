"""A language model as a drafter, whatever runtime computes its logits.

Its own logits go through the same pipeline as the target's, with the same noise, so that at any temperature it proposes
what the target would draw if it thought alike.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from acespec.edge.drafters.base import Candidate, QuietDrafter, TurnContext
from acespec.edge.drafters.cost_curve import CostCurve, measure_costs
from acespec.edge.drafters.logit_source import LogitSource
from acespec.proto import sampling

log = logging.getLogger(__name__)


class LmDrafter(QuietDrafter):
    """Proposes what the model behind `load` would say.

    The model is loaded by the first `begin`, in the thread that will use it, and timed there; `load` may raise any
    `AcespecError`, and `begin` passes it on.

    Attributes:
        costs: what a forward pass costs here; None before the first `begin`.
        load: makes the model.
    """

    def __init__(self, name: str, load: Callable[[], LogitSource]) -> None:
        super().__init__()
        self.name = name
        self.costs: CostCurve | None = None
        self.load = load
        self._state: LogitSource | None = None
        self._turn: TurnContext | None = None

    @property
    def cached(self) -> int:
        """Entries in the model's KV cache."""
        return self._state.cached if self._state is not None else 0

    @property
    def proposal_s(self) -> float | None:
        """See `Drafter.proposal_s`."""
        return self.costs.seconds(1) if self.costs is not None else None

    def begin(self, turn: TurnContext) -> None:
        """Starts a turn; the cache is kept and rolled back to what still agrees."""
        if self._state is None:
            self._state = self.load()
            self.costs = measure_costs(self._state)
            log.info("drafter %s: %s", self.name, self.costs)
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
            banned=turn.banned_at(len(path)),
        )
        return [Candidate(token, probability, "lm") for token, probability in ranked]

    def close(self) -> None:
        """Frees the model and its cache."""
        if self._state is not None:
            self._state.close()
        self._state = None
        self._turn = None
