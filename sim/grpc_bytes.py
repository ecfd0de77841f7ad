"""What a tuned gRPC stream adds to its messages, as bytes of the TCP stream: for a link that makes its own packets.

Measured on a 50 Kbps link with 50 ms each way, IPv4, TCP timestamps, plain text (`proto/framing.py` has the same as a
sum per message): a message costs a 5-byte gRPC prefix and a 9-byte HTTP/2 DATA header, and the first write after a
message came in carries one 13-byte WINDOW_UPDATE. Setting up a connection took 340 bytes up and 139 down, headers of
packets included; the first round after it 460 and 440 bytes where later ones take 151 and 138: those are the headers of
the call.
"""

from __future__ import annotations

from acespec.proto.framing import PACKET_HEADER
from acespec.sim.packets import SYN_HEADER

MESSAGE_PREFIX = 5
DATA_HEADER = 9
WINDOW_UPDATE = 13
SETUP_UP = 340 - SYN_HEADER - 2 * PACKET_HEADER
"""HTTP/2 preface and settings; with them go the SYN, the packet that carries them, and a bare ACK."""
SETUP_DOWN = 139 - SYN_HEADER - PACKET_HEADER
CALL_HEADERS_UP = 460 - 151
CALL_HEADERS_DOWN = 440 - 138
LOOKAHEAD_BYTES = 4096
"""Stream bytes that may be under way or unread before a writer has to wait."""


def stream_bytes(payload: int, *, updates_window: bool) -> int:
    """TCP stream bytes of a message of `payload` protobuf bytes."""
    return payload + MESSAGE_PREFIX + DATA_HEADER + (WINDOW_UPDATE if updates_window else 0)
