"""What `plain` and `ours` share: the real verifier, and a real edge at each place."""

from __future__ import annotations

from collections.abc import Mapping

from acespec.cloud.scheduler import FreeRun
from acespec.edge.brain.controller import Controller
from acespec.edge.brain.tree_shape import CHAIN, TreeShape
from acespec.edge.drafters.replay import Untimed
from acespec.proto.errors import UsageError
from acespec.sim.world.oracle_drafter import WORLD_KINDS
from acespec.sim.world.place import Actor, Place
from acespec.sim.world.scenario import Value
from acespec.sim.world.strategies.real_edge import RealEdge
from acespec.sim.world.strategies.real_verifier import RealVerifier
from acespec.sim.world.world import World


class RealStack:
    """Parameters: `free_run` and `target_rate`; see the registry."""

    def __init__(self, world: World, params: Mapping[str, Value]) -> None:
        target, kind = world.scenario.target, world.scenario.drafter.kind
        if kind not in WORLD_KINDS:
            raise UsageError(f"scenario drafter kind is {kind!r}: it must be one of {', '.join(WORLD_KINDS)}")
        rate = float(params["target_rate"])
        self._drafter = WORLD_KINDS[kind]
        self._text = world.text
        self._rate = None if rate < 0 else rate
        self._verifier = RealVerifier(world, _policy(str(params["free_run"]) or target.free_run), target.target_rate)

    def begin(self, place: Place) -> Actor:
        """See `Strategy.begin`."""
        drafter = self._drafter(place.text, place.accuracy, place.token_s, Untimed())
        return RealEdge(
            place, self._verifier, self._controller(), self._shape(), drafter, self._rate, self._text.forget
        )

    def _controller(self) -> Controller:
        """Decides an edge's draft length."""
        raise NotImplementedError

    def _shape(self) -> TreeShape:
        """How wide its drafts are."""
        return CHAIN


def _policy(name: str) -> FreeRun:
    try:
        return FreeRun(name)
    except ValueError:
        raise UsageError(f"strategy free_run is {name!r}: it must be always, idle or never") from None
