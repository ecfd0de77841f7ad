"""Plain cloud decoding over the real stack: the edge drafts nothing, acknowledges, and shows what comes."""

from __future__ import annotations

from acespec.edge.brain.controller import Controller, FixedController
from acespec.sim.world.strategies.real_stack import RealStack


class Plain(RealStack):
    """The baseline of all others."""

    name = "plain"

    def _controller(self) -> Controller:
        return FixedController(0)
