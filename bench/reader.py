"""How much of a run was there when a person who reads at a steady rate wanted it."""

from __future__ import annotations

from collections.abc import Sequence

from acespec.sim.world.reader import Reader

Arrival = tuple[float, int]
"""(time in seconds, tokens that came)."""


def on_schedule(arrivals: Sequence[Arrival], rate: float, buffer_s: float) -> float:
    """Share of the tokens that were there when a `Reader` of `rate` tokens/s wanted them."""
    reader = Reader(rate, buffer_s)
    for time, count in arrivals:
        reader.arrived(time, count)
    return 1.0 - reader.late / reader.wanted
