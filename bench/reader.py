"""A person who reads at a steady rate, and how often the text was not there yet."""

from __future__ import annotations

from collections.abc import Sequence

Arrival = tuple[float, int]
"""(time in seconds, tokens that came)."""


def on_schedule(arrivals: Sequence[Arrival], rate: float, buffer_s: float) -> float:
    """Share of the tokens that were there when a reader of `rate` tokens/s wanted them.

    The reader starts `buffer_s` after the first arrival. Who has to wait for a token goes on reading from it at the
    same rate: a stall of a second makes one token late and not all that follow.
    """
    clock = arrivals[0][0] + buffer_s
    wanted = late = 0
    for time, count in arrivals:
        for _ in range(count):
            wanted += 1
            if time > clock:
                late += 1
                clock = time
            clock += 1.0 / rate
    return 1.0 - late / wanted
