"""Sockets that hide as little as possible: small buffers, link-sized segments, no batching of writes.

A kernel buffer in front of the proxy looks to the sender like a link that is faster than it is, so the receive
buffer is about as small as TCP bears. The segment size of the modelled link is also announced to the peers, so that
a capture beside the proxy shows the segments that the model counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from acespec.proto.errors import UsageError

RECEIVE_BUFFER = 4096
SEND_BUFFER = 16384
IP_TCP_HEADERS = 40
BACKLOG = 64

Address = tuple[str, int]


def parse_address(text: str) -> Address:
    """Reads HOST:PORT or [IPV6]:PORT. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"cannot read address {text!r}: write HOST:PORT, such as 127.0.0.1:50051")
    return host.removeprefix("[").removesuffix("]"), int(port)


def format_address(address: Address) -> str:
    """HOST:PORT, with brackets round an IPv6 host."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def open_listener(address: Address, mtu: int) -> socket.socket:
    """A listening socket whose connections inherit the small buffers. Raises UsageError if there is none to be had."""
    sock: socket.socket | None = None
    try:
        family, sockaddr = await _resolve(address)
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _tune(sock, mtu)
        sock.bind(sockaddr)
        sock.listen(BACKLOG)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise UsageError(
            f"cannot listen on {format_address(address)}: {error.strerror or error}; choose another --listen"
        ) from error
    return sock


async def connect(address: Address, mtu: int) -> socket.socket:
    """A connection with the same tuning. Raises OSError."""
    family, sockaddr = await _resolve(address)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        _tune(sock, mtu)
        send_at_once(sock)
        await asyncio.get_running_loop().sock_connect(sock, sockaddr)
    except BaseException:
        sock.close()
        raise
    return sock


def send_at_once(sock: socket.socket) -> None:
    """No Nagle delay: the link has already decided when bytes leave."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def abort(sock: socket.socket) -> None:
    """Closes with a reset, so that the peer cannot take a cut stream for a complete one."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def _tune(sock: socket.socket, mtu: int) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    # Some systems let nobody set it before a connection exists; only a capture would tell the difference.
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mtu - IP_TCP_HEADERS)


async def _resolve(address: Address) -> tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]:
    found = await asyncio.get_running_loop().getaddrinfo(*address, type=socket.SOCK_STREAM)
    family, _, _, _, sockaddr = found[0]
    return family, sockaddr  # type: ignore[return-value]
