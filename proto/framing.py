"""What a message costs on the IP layer: the model behind every byte count that we print.

Constants were measured for a tuned gRPC stream over IPv4 with TCP timestamps: protobuf payload + gRPC prefix 5 + HTTP/2
DATA header 9 + one WINDOW_UPDATE 13 + TCP and IP headers 52. TLS 1.3 adds 22; an acknowledgement that rides on no data
is a packet of 52.
"""

from __future__ import annotations

PACKET_HEADER = 52
"""IPv4 20 + TCP 20 + timestamps 12."""
GRPC_HEADERS = 27
TLS_RECORD = 22
MSS = 1448


def message_bytes(payload: int, tls: bool = False) -> int:
    """IP-layer bytes of one gRPC message of `payload` protobuf bytes on an open stream, its own ACK excluded."""
    stream = payload + GRPC_HEADERS + (TLS_RECORD if tls else 0)
    return stream + PACKET_HEADER * max(1, -(-stream // MSS))
