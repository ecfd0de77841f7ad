"""What a link's rate may be: a constant, a trace that repeats, or a random walk between a few states. Data only.

`RateSpec` is the union. A constant is a plain number of Kbps (1000 bit/s of IP bytes); the other two are the classes
below. All become whole bits a second here, so that what is made of them needs no rounding that depends on a platform.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from acespec.proto.errors import UsageError
from acespec.sim.units import bps_from_kbps, ns_from_s

FASTEST_KBPS = 1e9
SHORTEST_DWELL_S = 0.01


@dataclass(frozen=True, slots=True)
class RateTrace:
    """A rate that changes at known times and starts again after `period_s`.

    `points` are (seconds, Kbps); the first is at 0, times ascend, and each rate holds until the next point or the end
    of the period. Zero is a slot that carries nothing, but some slot must carry. Raises UsageError.
    """

    points: tuple[tuple[float, float], ...]
    period_s: float

    def __post_init__(self) -> None:
        if not self.points or self.points[0][0] != 0:
            raise UsageError("a rate trace needs a first point at 0 seconds: shift its times")
        if not 0 < self.period_s < 1e9:
            raise UsageError(f"rate trace period_s is {self.period_s}: it must be above 0 and below 1e9 seconds")
        times = [*(t for t, _ in self.points), self.period_s]
        for before, after in pairwise(times):
            if not ns_from_s(before) < ns_from_s(after):
                raise UsageError(f"rate trace: {after} s does not come after {before} s; times must ascend")
        for t, kbps in self.points:
            if not 0 <= kbps <= FASTEST_KBPS:
                raise UsageError(f"rate trace: {kbps} Kbps at {t} s; a rate is 0 to 1e9 Kbps")
        if not any(bps for _, bps in self.steps()):
            raise UsageError("a rate trace that never carries anything is no link: give it a slot above 0 Kbps")

    def steps(self) -> tuple[tuple[int, int], ...]:
        """(length in ns, bits a second) of each slot of one period."""
        starts = [ns_from_s(t) for t, _ in self.points]
        ends = [*starts[1:], ns_from_s(self.period_s)]
        return tuple(
            (end - start, bps_from_kbps(kbps)) for start, end, (_, kbps) in zip(starts, ends, self.points, strict=True)
        )

    @property
    def mean_kbps(self) -> float:
        """Mean rate over one period."""
        ends = [*(t for t, _ in self.points[1:]), self.period_s]
        carried = math.fsum(kbps * (end - t) for (t, kbps), end in zip(self.points, ends, strict=True))
        return carried / self.period_s

    @property
    def peak_kbps(self) -> float:
        """The fastest slot."""
        return max(kbps for _, kbps in self.points)

    def scale_to_mean_kbps(self, kbps: float) -> RateTrace:
        """The same shape at another mean rate: all rates times one factor. Raises UsageError."""
        if not 0 < kbps <= FASTEST_KBPS:
            raise UsageError(f"cannot scale a rate trace to a mean of {kbps} Kbps: give a rate above 0")
        factor = kbps / self.mean_kbps
        return replace(self, points=tuple((t, rate * factor) for t, rate in self.points))


@dataclass(frozen=True, slots=True)
class RateState:
    """A rate that holds for an exponential time of mean `mean_dwell_s`."""

    kbps: float
    mean_dwell_s: float


@dataclass(frozen=True, slots=True)
class MarkovRate:
    """A continuous-time Markov chain of rates: after each stay it moves to any other state, all equally likely.

    Stays are whole milliseconds. The share of time in a state is its mean stay over the sum of all mean stays, because
    every state is visited equally often; the chain starts in that distribution. Raises UsageError.
    """

    states: tuple[RateState, ...]

    def __post_init__(self) -> None:
        if not 2 <= len(self.states) <= 64:
            raise UsageError(f"a Markov rate has {len(self.states)} states: give 2 to 64")
        for state in self.states:
            if not 0 <= state.kbps <= FASTEST_KBPS:
                raise UsageError(f"a Markov rate has a state of {state.kbps} Kbps: a rate is 0 to 1e9 Kbps")
            if not SHORTEST_DWELL_S <= state.mean_dwell_s < 1e9:
                raise UsageError(
                    f"a Markov rate has a mean_dwell_s of {state.mean_dwell_s}: give {SHORTEST_DWELL_S} to 1e9 seconds"
                )
        if not any(bps_from_kbps(state.kbps) for state in self.states):
            raise UsageError("a Markov rate that never carries anything is no link: give it a state above 0 Kbps")

    @property
    def mean_kbps(self) -> float:
        """Mean rate in the long run."""
        whole = math.fsum(state.mean_dwell_s for state in self.states)
        return math.fsum(state.kbps * state.mean_dwell_s for state in self.states) / whole

    @property
    def peak_kbps(self) -> float:
        """The fastest state."""
        return max(state.kbps for state in self.states)


VaryingRate = RateTrace | MarkovRate
RateSpec = float | VaryingRate
