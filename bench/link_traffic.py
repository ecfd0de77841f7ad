"""What `link_backends` sends over a link: a sink, an echo, and the clients that time them. Standard library only.

Run as a program, since each end lives in a network namespace of its own:

    python link_traffic.py serve HOST PORT              one process for all connections, until terminated
    python link_traffic.py bulk HOST PORT NBYTES        uploads; prints what the sink saw, {"bytes": .., "seconds": ..}
    python link_traffic.py rounds HOST PORT COUNT SIZE  ping-pong on one connection; prints {"ms": [..]}

The congestion control is pinned to reno, so that the machine's default does not matter; and an upload never has more
than `WINDOW` under way, so that with a queue of ten packets it measures the link, not how TCP recovers from its drops.
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import sys
import termios
import threading
import time
from contextlib import suppress

BULK, ECHO = b"b", b"e"
CHUNK = 65536
SEGMENT = 1448
WINDOW = 8 * SEGMENT
LOOK_S = 0.005
SETTLING_S = 3.0
"""While TCP learns how long a round trip is, it sends some segments twice."""
PAUSE_S = 0.1
"""Between rounds: longer than a delayed ACK takes to be sent and carried, and than a token bucket takes to refill."""


def serve(host: str, port: int) -> None:
    """Until terminated. The first byte of a connection says what is wanted."""
    with socket.create_server((host, port)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=attend, args=(client,), daemon=True).start()


def attend(client: socket.socket) -> None:
    """One connection; its end may be a reset, if the link ends first."""
    with client, suppress(ConnectionError):
        if client.recv(1) == BULK:
            client.sendall(json.dumps(swallow(client)).encode())
        else:
            while data := client.recv(CHUNK):
                client.sendall(data)


def swallow(client: socket.socket) -> dict[str, float]:
    """Reads to the end. Once settled: bytes behind the first arrival, and the time from that to the last one."""
    arrivals: list[tuple[float, int]] = []
    while data := client.recv(CHUNK):
        arrivals.append((time.monotonic(), len(data)))
    begin = arrivals[0][0] + SETTLING_S if arrivals[-1][0] - arrivals[0][0] > 2 * SETTLING_S else 0
    settled = [(at, nbytes) for at, nbytes in arrivals if at >= begin]
    return {"bytes": sum(nbytes for _, nbytes in settled[1:]), "seconds": settled[-1][0] - settled[0][0]}


def connect(host: str, port: int) -> socket.socket:
    """A connection without Nagle's delay."""
    sock = socket.create_connection((host, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    return sock


def bulk(host: str, port: int, nbytes: int) -> dict[str, float]:
    """Uploads, and reads what the sink says of it."""
    with connect(host, port) as sock:
        sock.sendall(BULK)
        left = nbytes
        while left:
            if unacknowledged(sock) + SEGMENT > WINDOW:
                time.sleep(LOOK_S)
                continue
            chunk = min(SEGMENT, left)
            sock.sendall(bytes(chunk))
            left -= chunk
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while data := sock.recv(CHUNK):
            answer += data
    report: dict[str, float] = json.loads(answer)
    return report


def unacknowledged(sock: socket.socket) -> int:
    """Bytes written to the socket that the other end has not acknowledged."""
    answer = fcntl.ioctl(sock, termios.TIOCOUTQ, struct.pack("i", 0))
    (nbytes,) = struct.unpack("i", answer)
    return int(nbytes)


def rounds(host: str, port: int, count: int, size: int) -> dict[str, list[float]]:
    """Milliseconds from sending a message to having all of it back; the link is idle in between."""
    times = []
    with connect(host, port) as sock:
        sock.sendall(ECHO)
        for _ in range(count):
            begin = time.monotonic()
            sock.sendall(bytes(size))
            left = size
            while left:
                left -= len(sock.recv(left))
            times.append((time.monotonic() - begin) * 1000)
            time.sleep(PAUSE_S)
    return {"ms": times}


def main() -> None:
    """Entry point."""
    what, host, port, *numbers = sys.argv[1:]
    match what:
        case "serve":
            serve(host, int(port))
        case "bulk":
            sys.stdout.write(json.dumps(bulk(host, int(port), int(numbers[0]))))
        case "rounds":
            sys.stdout.write(json.dumps(rounds(host, int(port), int(numbers[0]), int(numbers[1]))))


if __name__ == "__main__":
    main()
