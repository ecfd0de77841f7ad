"""When a sender may put its next message on a narrow link, judged from acknowledgements alone (sans-IO).

The unit of cost is the message: its headers outweigh its tokens by far. So a sender writes at once while the link's
queue is believed empty and gathers while it is not. The belief is BBR's (Cardwell et al., 2016), reduced to what a
token stream needs: the rate is the windowed maximum of delivery rates, the base round trip the windowed minimum,
and the bytes in flight may be `gain` times their product, plus one message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass

WINDOW_S = 10.0
"""How long rate and round-trip samples count. A link that got slower is believed after this long."""
FLOOR_BYTES = 600
"""In flight whatever the estimates say: five bare messages, about one bandwidth-delay product of 50 Kbps x 100 ms."""


@dataclass(frozen=True, slots=True)
class _InFlight:
    mark: int
    nbytes: int
    sent_at: float
    delivered_before: int
    delivered_at: float


class Pacer:
    """What one direction of a stream has in flight. Times in seconds (any monotonic clock), sizes in IP bytes.

    `gain` is in bandwidth-delay products: one fills the pipe; what is above it covers acknowledgements that come late,
    and stands in the link's queue.
    """

    def __init__(self, gain: float, floor_bytes: int = FLOOR_BYTES) -> None:
        self._gain = gain
        self._floor = floor_bytes
        self._flight: deque[_InFlight] = deque()
        self._flight_bytes = 0
        self._delivered = 0
        self._delivered_at = 0.0
        self._rates: deque[tuple[float, float]] = deque()  # falling: the first is the largest
        self._rtts: deque[tuple[float, float]] = deque()  # rising: the first is the smallest
        self.last_rtt: float | None = None

    @property
    def rate(self) -> float | None:
        """Estimated link rate in bytes/s; None before the first acknowledgement. Never above the true rate for long."""
        return self._rates[0][1] if self._rates else None

    @property
    def base_rtt(self) -> float | None:
        """Smallest round trip seen of late, in seconds, without the time the other end held the message."""
        return self._rtts[0][1] if self._rtts else None

    @property
    def limit_bytes(self) -> float:
        """Bytes that may be in flight before the next message."""
        rate, rtt = self.rate, self.base_rtt
        if rate is None or rtt is None:
            return float(self._floor)
        return max(self._floor, self._gain * rate * rtt)

    @property
    def flight_bytes(self) -> int:
        """Bytes written and not acknowledged."""
        return self._flight_bytes

    def ready(self) -> bool:
        """True if the next message may be written now."""
        return self._flight_bytes <= self.limit_bytes

    def sent(self, now: float, mark: int, nbytes: int) -> None:
        """A message went out. `mark` never falls: an acknowledgement of a mark covers all messages up to it."""
        if not self._flight:
            self._delivered_at = now
        self._flight.append(_InFlight(mark, nbytes, now, self._delivered, self._delivered_at))
        self._flight_bytes += nbytes

    def acknowledged(self, now: float, mark: int, held_s: float = 0.0) -> None:
        """The other end has everything up to `mark`, and held the newest of it for `held_s` before it said so."""
        newest: _InFlight | None = None
        while self._flight and self._flight[0].mark <= mark:
            newest = self._flight.popleft()
            self._flight_bytes -= newest.nbytes
            self._delivered += newest.nbytes
        if newest is None:
            return
        arrived = now - held_s
        self._delivered_at = max(arrived, self._delivered_at)
        rtt = max(arrived - newest.sent_at, 1e-6)
        self.last_rtt = rtt
        while self._rtts and self._rtts[-1][1] >= rtt:
            self._rtts.pop()
        _push(self._rtts, now, rtt)
        elapsed = max(arrived - newest.delivered_at, rtt)
        rate = (self._delivered - newest.delivered_before) / elapsed
        while self._rates and self._rates[-1][1] <= rate:
            self._rates.pop()
        _push(self._rates, now, rate)

    def forget(self, marks: Container[int]) -> None:
        """Messages that nobody will acknowledge; what was learned about the link stays."""
        self._flight = deque(message for message in self._flight if message.mark not in marks)
        self._flight_bytes = sum(message.nbytes for message in self._flight)

    def reset(self) -> None:
        """A new stream: nothing is in flight any more; what was learned about the link stays."""
        self._flight.clear()
        self._flight_bytes = 0


def _push(samples: deque[tuple[float, float]], now: float, value: float) -> None:
    """The newest sample; the caller has dropped those that it beats for as long as they would last."""
    samples.append((now, value))
    while samples[0][0] < now - WINDOW_S:
        samples.popleft()
