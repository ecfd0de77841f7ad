"""A rival's draft length: fixed, or the best that its own closed form finds for what a round really costs.

The form is told what nobody could know better: the drafter's true acceptance, the link's delay and mean rates, the
profile of the verifier and how many share it. Whatever a round takes beyond that, as by jitter or lost packets, is
measured (an average that forgets) and added. So a rival is not beaten by its tuning: its best comes within a few
percent of what any fixed length reaches, alone or in a crowd.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from acespec.edge.drafters.replay_accuracy import ChangingAccuracy, DepthAccuracy, RecordedAccuracy
from acespec.proto.errors import UsageError
from acespec.sim.theory.acceptance import Acceptance
from acespec.sim.theory.costs import Costs
from acespec.sim.theory.stopping import fastest_depth
from acespec.sim.world.strategies.answer import Answers
from acespec.sim.world.strategies.shared_step import SharedStep
from acespec.sim.world.world import World

BEST = "best"
WEIGHT = 0.1
"""Of the newest round in the average of what rounds take beyond the closed form's costs."""
GRAIN_MS = 20.0
"""Such delays count in steps of 1 ms near 0 and of 5 % above this, so that few of them need another search."""
CROWD_GRAIN = 0.05
"""Crowds count in steps of about this share, likewise."""


class DraftLength:
    """Shared by the edges of a run. `wish` is `best` or a number.

    `form` gives ms per token of a draft length at its costs, `tau` the ms that its messages occupy the link. With
    `t_dc` the verifier itself drafts, in so many ms a token, and nobody waits for a link.

    Raises:
        UsageError: no such length, or one that the verifier's limits do not allow.
    """

    def __init__(
        self,
        world: World,
        answers: Answers,
        wish: str,
        form: Callable[[Costs, int], float],
        *,
        R: float = 0.0,
        tau: Callable[[int], float] | None = None,
        t_dc: float | None = None,
    ) -> None:
        self._answers = answers
        self._longest = min(world.scenario.target.max_draft, world.max_rows - 1)
        self._step = SharedStep(world.timing, world.max_rows)
        self._t_d = 1000 * world.scenario.drafter.token_s
        self._form = form
        self._R = R
        self._tau = tau or _no_link
        self._t_dc = t_dc
        self._fixed = None if wish == BEST else _number(wish, self._longest)
        self._costs: dict[tuple[int, int], Costs] = {}
        self._found: dict[tuple[int, int], int] = {}

    def costs(self, drafts: int, beyond_ms: float = 0.0) -> Costs:
        """Of a round with `drafts` drafts in the present crowd that takes `beyond_ms` longer than it would have to."""
        at = drafts, self._crowd_grain
        if at not in self._costs:
            self._costs[at] = self._price(drafts, math.exp(at[1] * CROWD_GRAIN))
        costs = self._costs[at]
        return replace(costs, t_v=costs.t_v + beyond_ms) if beyond_ms else costs

    def best(self, beyond_ms: float) -> int:
        """The length to draft now."""
        if self._fixed is not None:
            return self._fixed
        grain = round(GRAIN_MS * math.log1p(beyond_ms / GRAIN_MS))
        at = grain, self._crowd_grain
        if at not in self._found:
            beyond = GRAIN_MS * math.expm1(grain / GRAIN_MS)
            self._found[at], _ = fastest_depth(lambda D: self._form(self.costs(D, beyond), D), self._longest)
        return self._found[at]

    @property
    def _crowd_grain(self) -> int:
        return round(math.log(max(1, self._answers.running)) / CROWD_GRAIN)

    def _price(self, drafts: int, crowd: float) -> Costs:
        tau = self._tau(drafts)
        if self._t_dc is None:
            t_v = self._step.round_ms(drafts + 1, crowd, away_ms=drafts * self._t_d + self._R + tau)
        else:
            drafting = drafts * self._t_dc
            t_v = self._step.round_ms(drafts + 1, crowd, draft_ms=drafting) - drafting
        return Costs(self._t_d, t_v, self._step.round_ms(1, 1), self._R, tau, self._t_dc)


class EdgeDraftLength:
    """One edge's: it learns how long its rounds take."""

    __slots__ = ("_beyond", "_shared")

    def __init__(self, shared: DraftLength) -> None:
        self._shared = shared
        self._beyond: float | None = None

    def waited(self, drafts: int, ms: float) -> None:
        """A round of `drafts` drafts took `ms` from leaving to verdict."""
        beyond = ms - self._shared.costs(drafts).C
        self._beyond = beyond if self._beyond is None else self._beyond + WEIGHT * (beyond - self._beyond)

    @property
    def beyond_ms(self) -> float:
        """What rounds take beyond the closed form's costs, never below 0."""
        return max(0.0, self._beyond or 0.0)

    @property
    def now(self) -> int:
        """The length to draft now."""
        return self._shared.best(self.beyond_ms)


def acceptance_of(world: World) -> Acceptance:
    """The drafter's chances as the closed forms want them; of a trace, the share of right guesses at every depth;
    where they change on the way, their mean over an answer."""
    match world.places[0].accuracy:
        case DepthAccuracy() as known:
            return known.chances
        case ChangingAccuracy() as changing:
            tokens = range(world.scenario.load.tokens)
            return sum(changing.at(token).chances[0] for token in tokens) / len(tokens)
        case RecordedAccuracy() as trace:
            ranks = [rank for recording in trace.recordings for rank in recording.ranks]
            return ranks.count(0) / len(ranks)
        case other:
            raise UsageError(f"{type(other).__name__} states no acceptance: closed forms need chances or a trace")


def _number(text: str, longest: int) -> int:
    try:
        length = int(text)
    except ValueError:
        raise UsageError(f"strategy draft is {text!r}: it must be {BEST} or a whole number") from None
    if not 1 <= length <= longest:
        raise UsageError(f"strategy draft is {length}: it must lie between 1 and {longest}, the verifier's limit")
    return length


def _no_link(drafts: int) -> float:
    return 0.0
