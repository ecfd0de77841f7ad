"""The walk of a Markov rate, slot by slot, from a seeded stream."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from acespec.sim.drawn import exponential_ns, weighted_index
from acespec.sim.rate import MarkovRate
from acespec.sim.units import bps_from_kbps


def walk(rate: MarkovRate, stream: Random) -> Iterator[tuple[int, int]]:
    """Endless (length in ns, bits a second), begun in the long-run distribution."""
    states = rate.states
    current = weighted_index(stream, [state.mean_dwell_s for state in states])
    while True:
        state = states[current]
        yield exponential_ns(stream, state.mean_dwell_s), bps_from_kbps(state.kbps)
        step = 1 + int(stream.random() * (len(states) - 1))
        current = (current + step) % len(states)
