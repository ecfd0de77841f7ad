"""Bytes of a session as the IP layer would see them, modelled from the frames alone (sans-IO).

A frame costs what `proto/framing.py` says. A frame that no frame of the other direction follows within 40 ms is
acknowledged by a bare packet, and so is every second one of a burst (RFC 1122, section 4.2.3.2). What the cloud sees of
a frame, and what rides on its answers, shows here a round trip later. Setting up the connection, HTTP/2 pings and TCP
retransmissions are not included.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from acespec.proto.framing import PACKET_HEADER, message_bytes

DELAYED_ACK_S = 0.04


@dataclass(frozen=True, slots=True)
class WireTotals:
    """Frames, protobuf bytes and IP bytes of both directions; bare acknowledgements count where they travel."""

    up_messages: int = 0
    up_payload_bytes: int = 0
    up_bytes: int = 0
    down_messages: int = 0
    down_payload_bytes: int = 0
    down_bytes: int = 0

    def __sub__(self, earlier: WireTotals) -> WireTotals:
        """What came on top since `earlier`."""
        return WireTotals(*(getattr(self, name) - getattr(earlier, name) for name in self.__slots__))


class _Way:
    """One direction: what was sent, and which of it waits for an acknowledgement."""

    def __init__(self) -> None:
        self.messages = self.payload = self.ip_bytes = 0
        self._unacked: deque[float] = deque()  # when they were sent

    def sent(self, now: float, payload: int, tls: bool) -> None:
        self.messages += 1
        self.payload += payload
        self.ip_bytes += message_bytes(payload, tls)
        self._unacked.append(now)

    def bare_acks(self, now: float, riding: bool) -> int:
        """Bare acknowledgements for what was sent by `now`; `riding`: a frame of the other end carries the last."""
        acks, waiting = 0, self._unacked
        while waiting and waiting[0] <= now:
            first = waiting.popleft()
            if waiting and waiting[0] <= min(first + DELAYED_ACK_S, now):
                waiting.popleft()
                acks += 1
            elif now >= first + DELAYED_ACK_S:
                acks += 1
            elif not riding:
                waiting.appendleft(first)
                break
        return acks


class WireStats:
    """Counts frames of both directions."""

    def __init__(self, tls: bool = False) -> None:
        self._tls = tls
        self._up = _Way()
        self._down = _Way()

    def sent(self, now: float, payload: int) -> None:
        """A frame of `payload` protobuf bytes went up."""
        self._settle(now, self._down, self._up, riding=True)
        self._up.sent(now, payload, self._tls)

    def received(self, now: float, payload: int, rtt: float = 0.0) -> None:
        """A frame of `payload` protobuf bytes came down; it left the cloud half a round trip ago."""
        self._settle(now - rtt, self._up, self._down, riding=True)
        self._down.sent(now, payload, self._tls)

    def totals(self, now: float) -> WireTotals:
        """Everything up to `now`."""
        self._settle(now, self._down, self._up, riding=False)
        self._settle(now, self._up, self._down, riding=False)
        return self.so_far

    @property
    def so_far(self) -> WireTotals:
        """What was counted by now; bare acknowledgements that are due are not among it yet."""
        up, down = self._up, self._down
        return WireTotals(up.messages, up.payload, up.ip_bytes, down.messages, down.payload, down.ip_bytes)

    @staticmethod
    def _settle(now: float, acked: _Way, acking: _Way, riding: bool) -> None:
        acking.ip_bytes += PACKET_HEADER * acked.bare_acks(now, riding)
