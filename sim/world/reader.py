"""A person who reads at a steady rate, and how often the text was not there yet."""

from __future__ import annotations

BUFFER_S = 0.5
"""Between the first token and the moment at which reading begins."""


class Reader:
    """Reads `rate` tokens/s from `buffer_s` after the first arrival.

    Who has to wait for a token goes on from there at the same rate: a stall of a second makes one token late and not
    all that follow. At a rate of 0 nobody waits.

    Attributes:
        wanted: tokens that came.
        late: those that were not there when they were wanted.
    """

    __slots__ = ("_buffer_s", "_clock", "_gap", "late", "wanted")

    def __init__(self, rate: float, buffer_s: float = BUFFER_S) -> None:
        self.wanted = 0
        self.late = 0
        self._gap = 1.0 / rate if rate > 0 else 0.0
        self._buffer_s = buffer_s
        self._clock: float | None = None

    def arrived(self, now: float, tokens: int) -> None:
        """`tokens` came at `now`, in seconds."""
        clock = now + self._buffer_s if self._clock is None else self._clock
        self.wanted += tokens
        if not self._gap:
            return
        for _ in range(tokens):
            if now > clock:
                self.late += 1
                clock = now
            clock += self._gap
        self._clock = clock

    def begin_turn(self) -> None:
        """Another answer: reading begins anew."""
        self._clock = None
