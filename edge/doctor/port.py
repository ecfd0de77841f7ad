"""Whether the local endpoint could listen where it is set to."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

from acespec.edge.doctor.finding import Finding, ok, warning

CHECK = "local port"
TIMEOUT_S = 2.0


def port_finding(host: str, port: int) -> Finding:
    """Try to listen there, for a moment."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            if os.name != "nt":  # There it would share a port that is in use; here, one that was just let go.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if _is_ours(host, port):
            return ok(CHECK, f"acespec proxy is running on {host}:{port}")
        return warning(
            CHECK,
            f"acespec proxy could not listen on {host}:{port}: {error.strerror or error}",
            "--port with another one, or end what listens there",
        )
    return ok(CHECK, f"{host}:{port} is free for acespec proxy")


def _is_ours(host: str, port: int) -> bool:
    """Whether a proxy of ours answers there: its page, which is open to all, says so."""
    request = f"GET / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode()
    answer = b""
    with suppress(OSError), socket.create_connection((host, port), TIMEOUT_S) as connection:
        connection.sendall(request)
        while (chunk := connection.recv(4096)) and len(answer) < 65_536:
            answer += chunk
    return b"acespec" in answer
