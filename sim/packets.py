"""How TCP turns a byte stream into packets, where only the stream is seen: segments, headers, delayed ACKs.

Sizes are IP bytes on IPv4. A packet costs 52 bytes besides its payload: IP 20, TCP 20, timestamps 12 (RFC 7323). A lone
ACK is such a packet without payload. A receiver acknowledges once more than one full segment is unacknowledged, so for
bulk data every second segment (RFC 5681, 4.2), or 40 ms after the oldest one (Linux's minimum for the delayed ACK); an
ACK rides free on data that leaves in the meantime.
"""

from __future__ import annotations

from acespec.sim.units import MILLISECOND

SYN_HEADER = 60
"""IP 20, TCP 20, options 20: MSS, SACK permitted, timestamps, window scale."""
RST_HEADER = 40
DELAYED_ACK = 40 * MILLISECOND


def segment_sizes(nbytes: int, mss: int) -> list[int]:
    """Payload sizes of the segments that carry `nbytes` written at once."""
    full, rest = divmod(nbytes, mss)
    return [mss] * full + ([rest] if rest else [])


def wire_size(nbytes: int, mss: int, overhead: int) -> int:
    """IP bytes of the segments that carry `nbytes` written at once, ACKs not counted."""
    return nbytes + overhead * len(segment_sizes(nbytes, mss))


class DelayedAck:
    """When one host owes an ACK. Times are the caller's, in nanoseconds."""

    __slots__ = ("_due", "_mss", "_unacked")

    def __init__(self, mss: int) -> None:
        self._mss = mss
        self._unacked = 0
        self._due: int | None = None

    @property
    def due(self) -> int | None:
        """When a lone ACK must leave, or None while nothing is owed."""
        return self._due

    def received(self, t: int, nbytes: int) -> None:
        """A segment with `nbytes` of payload (1 for a FIN) reached this host at `t`."""
        self._unacked += nbytes
        if self._unacked > self._mss:
            self._due = t
        elif self._due is None:
            self._due = t + DELAYED_ACK

    def acknowledged(self) -> None:
        """A packet of any kind left this host: its header acknowledges all that came."""
        self._unacked = 0
        self._due = None
