"""Drafts up, commits down: the real edge session, controller, codec and scheduler, as they run live."""

from __future__ import annotations

from collections.abc import Mapping

from acespec.edge.brain.controller import Controller
from acespec.edge.brain.controllers import make_controller
from acespec.edge.brain.tree_shape import TreeShape, tree_shape
from acespec.sim.world.scenario import Value
from acespec.sim.world.strategies.real_stack import RealStack
from acespec.sim.world.world import World


class Ours(RealStack):
    """Parameters: `draft`, `tree`, and those of the real stack."""

    name = "ours"

    def __init__(self, world: World, params: Mapping[str, Value]) -> None:
        super().__init__(world, params)
        self._draft = str(params["draft"])
        self._tree = tree_shape(str(params["tree"]))
        self._controller()  # A length that makes no sense is refused here, not in the middle of a run.

    def _controller(self) -> Controller:
        return make_controller(self._draft)

    def _shape(self) -> TreeShape:
        return self._tree
