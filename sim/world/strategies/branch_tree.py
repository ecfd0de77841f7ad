"""The tree that AceSpec grows while it waits: how many alternatives at each depth, how long it takes, what it catches.

Real-valued fan-outs, as in the closed forms. Unstated in the paper and decided here: a tree of D levels takes
`tree_factor` times a chain of D drafts (one forward pass holds all branches of a level), plus `branch_ms` for each node
beside the chain, which makes a wide tree dear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from acespec.edge.drafters.replay_accuracy import RecordedAccuracy
from acespec.proto.errors import UsageError
from acespec.proto.replay_text import mix
from acespec.sim.theory.acceptance import Acceptance, rate_at, survival
from acespec.sim.theory.branch_cache import (
    Tail,
    acespec_fan_out,
    best_fan_out,
    eta,
    geometric_fan_out,
    hit_probability,
    tree_budget,
)
from acespec.sim.theory.costs import Costs
from acespec.sim.world.place import Place, Wish

_STREAM = 0xFA0
_TWO_64 = float(1 << 64)

FanOut = tuple[float, ...]
Law = Callable[[float, int, float, float], FanOut]
"""From B, D, a and b to F_0 .. F_D."""

LAWS: Mapping[str, Law] = {
    "geometric": lambda B, D, a, b: (*acespec_fan_out(B, D, a, b), 0.0),
    "uniform": lambda B, D, a, b: (*geometric_fan_out(B - D, 1.0, D), 0.0),
    "one": lambda B, D, a, b: (*(1.0,) * D, 0.0),
    "single": lambda B, D, a, b: (0.0,) * (D + 1),
    "bonus": lambda B, D, a, b: geometric_fan_out(B - D, eta(a, b), D + 1),
    "best": best_fan_out,
}
"""`geometric` is AceSpec's as printed, with no branch for the bonus token; `uniform` shares as much among the same
depths. The paper's "single branch" may be `single`, the chain going on and nothing else, or `one` alternative at each
depth. `bonus` carries the printed law's ratio on to k = D, as our table of strategies has it; `best` is SSD's law with
the F_0 that maximises hits (arXiv 2603.03251)."""


@dataclass(frozen=True, slots=True)
class Tree:
    """What is grown during one wait for `drafts` drafts. Without `fan_out` nothing is, and every verdict is a miss."""

    drafts: int
    fan_out: FanOut
    ms: float
    hit: float


class Grower:
    """Makes trees of a budget of `most` nodes, the chain's included.

    With `adapt` the budget is B* = min(most, floor(T_tree^-1(R + t_v))), as the paper has it.
    """

    def __init__(
        self,
        law: str,
        *,
        most: int,
        tail: Tail,
        acceptance: Acceptance,
        t_d: float,
        tree_factor: float,
        branch_ms: float,
        adapt: bool,
    ) -> None:
        if law not in LAWS:
            raise UsageError(f"strategy law is {law!r}: it must be one of {', '.join(LAWS)}")
        self._law = LAWS[law]
        self._most = most
        self._tail = tail
        self._a = acceptance
        self._level_ms = tree_factor * t_d
        self._branch_ms = branch_ms
        self._adapt = adapt
        self._trees: dict[tuple[int, int], Tree] = {}

    def tree(self, drafts: int, costs: Costs) -> Tree:
        """The tree beside a chain of `drafts`, at the costs of its round."""
        budget = self._most
        if self._adapt:
            budget = tree_budget(lambda nodes: self._ms(nodes, drafts), costs, self._most)
        if (drafts, budget) not in self._trees:
            self._trees[drafts, budget] = self._plan(drafts, budget)
        return self._trees[drafts, budget]

    def catches(self, tree: Tree, place: Place, wish: Wish, accepted: int, position: int, ahead: int) -> bool:
        """Does the tree hold the token at `position` that follows the `accepted` drafts of its chain?

        A trace knows: it has the rank of each token in the drafter's list. Elsewhere R(F) is the chance, decided by
        (seed, position); a chain that was kept whole goes on right as often as the drafter is.
        """
        if not tree.fan_out:
            return False
        width, bonus = tree.fan_out[accepted], accepted == tree.drafts
        if isinstance(place.accuracy, RecordedAccuracy):
            rank = rank_of(place.accuracy, wish, position)
            return rank == 0 or rank < width if bonus else rank <= width
        chance = self._tail.hit(width)
        if bonus:
            depth = ahead + accepted + 1
            if place.right(wish, position, depth):
                return True
            a = rate_at(self._a, depth)
            chance = max(0.0, chance - a) / (1.0 - a)
        return mix(_STREAM, wish.seed, position) / _TWO_64 < chance

    def _plan(self, drafts: int, budget: int) -> Tree:
        if budget < drafts:
            return Tree(drafts, (), 0.0, 0.0)
        a = survival(self._a, drafts) ** (1.0 / drafts)
        fan_out = self._law(budget, drafts, a, self._tail.b)
        nodes = drafts + sum(fan_out)
        return Tree(drafts, fan_out, self._ms(nodes, drafts), hit_probability(self._a, fan_out, self._tail))

    def _ms(self, nodes: float, drafts: int) -> float:
        return drafts * self._level_ms + max(0.0, nodes - drafts) * self._branch_ms


def rank_of(accuracy: RecordedAccuracy, wish: Wish, position: int) -> int:
    """Where the target's token stood in the drafter's list, from 0; behind a recording it stands first."""
    ranks = accuracy.recordings[wish.seed % len(accuracy.recordings)].ranks
    at = position - wish.prompt_len
    return ranks[at] if at < len(ranks) else 0
