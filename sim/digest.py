"""A fingerprint of everything that happened in virtual time: equal runs have equal digests, on any machine.

Only whole numbers go in, in the order of events: no text of a float, no order of a set, no `hash()`.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b
from struct import Struct

_RECORD = Struct("<qBiqq")
_FLUSH = 1 << 16
DIGEST_BYTES = 16


class Happening(IntEnum):
    """Kinds of events in a digest; numbers are part of it, so they never change."""

    PACKET_UP = 1
    PACKET_DOWN = 2
    COMMIT = 3
    STEP = 4
    DRAFT = 5
    TURN = 6


class EventDigest:
    """BLAKE2b (RFC 7693) over records of (time, kind, edge, a, b)."""

    __slots__ = ("_buffer", "_hash", "events")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=DIGEST_BYTES)
        self._buffer = bytearray()
        self.events = 0

    def add(self, time_ns: int, kind: Happening, edge: int, a: int = 0, b: int = 0) -> None:
        """Something happened at an edge (-1: at none of them); `a` and `b` say what, each below 2^63."""
        self.events += 1
        self._buffer += _RECORD.pack(time_ns, kind, edge, a, b)
        if len(self._buffer) >= _FLUSH:
            self._hash.update(self._buffer)
            self._buffer.clear()

    def hex(self) -> str:
        """The digest so far."""
        self._hash.update(self._buffer)
        self._buffer.clear()
        return self._hash.hexdigest()
