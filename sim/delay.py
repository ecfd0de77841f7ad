"""A one-way delay that changes at known times: another route, a hand-over, a satellite instead of a cable."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from acespec.proto.errors import UsageError
from acespec.sim.units import ns_from_ms, ns_from_s

LONGEST_MS = 1e7


@dataclass(frozen=True, slots=True)
class DelayStep:
    """From `start_s` seconds after the start of the link on, the one-way delay is `delay_ms`. Raises UsageError."""

    start_s: float
    delay_ms: float

    def __post_init__(self) -> None:
        if not (0 < self.start_s < 1e9 and 0 <= self.delay_ms <= LONGEST_MS):
            raise UsageError(
                f"delay step {self.start_s}:{self.delay_ms} makes no sense: give START above 0 in seconds, and a delay "
                "between 0 and 1e7 ms"
            )

    @classmethod
    def parse(cls, text: str) -> DelayStep:
        """Reads `START:DELAY` in seconds and milliseconds, such as `20:150`. Raises UsageError."""
        start, _, delay = text.partition(":")
        try:
            return cls(float(start), float(delay))
        except ValueError:
            raise UsageError(f"cannot read delay step {text!r}: write SECONDS:MILLISECONDS, such as 20:150") from None


class DelayCurve:
    """The delay at each moment: `delay_ms` until the first of `steps`, which must ascend. Times in nanoseconds."""

    __slots__ = ("_delays", "_starts")

    def __init__(self, delay_ms: float, steps: Sequence[DelayStep]) -> None:
        self._starts = [ns_from_s(step.start_s) for step in steps]
        self._delays = [ns_from_ms(delay_ms), *(ns_from_ms(step.delay_ms) for step in steps)]

    def at(self, t: int) -> int:
        """The delay of a packet that leaves the line at `t`."""
        return self._delays[bisect_right(self._starts, t)]


def ascend(steps: Sequence[DelayStep]) -> bool:
    """True if each step comes after the one before it."""
    return all(ns_from_s(a.start_s) < ns_from_s(b.start_s) for a, b in pairwise(steps))


def is_delay(ms: float) -> bool:
    """True for a delay or jitter that a link may have."""
    return math.isfinite(ms) and 0 <= ms <= LONGEST_MS
