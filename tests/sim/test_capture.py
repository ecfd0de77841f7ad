"""The proxy's modelled bytes against tcpdump on a real 50 Kbps cable between namespaces, the same traffic on both."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from acespec.sim.link import LinkSpec
from acespec.sim.log_check import LinkSummary
from acespec.sim.shaper import Shaper

from .wire_capture import THERE, Captured, capture, far_server, near_server, read_capture, shaped_pair

log = logging.getLogger(__name__)
PORT = 47011
needs_tools = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or not all(map(shutil.which, ("tcpdump", "ip", "tc"))),
    reason="needs root, tcpdump, ip and tc",
)

SERVER = """
import socket, sys, time
def serve(host, port, up, down, think, rounds):
    listener = socket.create_server((host, port))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    print("ready", flush=True)
    client, _ = listener.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(rounds):
        left = up
        while left:
            left -= len(client.recv(left))
        time.sleep(think)
        client.sendall(bytes(down))
    client.recv(1)
    client.close()
    time.sleep(60)
"""


@dataclass(frozen=True)
class Traffic:
    """`rounds` of `up` bytes answered by `down` bytes, each side thinking for `think` seconds before it sends."""

    name: str
    up: int
    down: int
    think: float
    rounds: int

    def server(self, host: str) -> str:
        return f"{SERVER}\nserve({host!r}, {PORT}, {self.up}, {self.down}, {self.think}, {self.rounds})"

    def run_client(self, address: tuple[str, int]) -> None:
        with socket.create_connection(address) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
            for _ in range(self.rounds):
                client.sendall(bytes(self.up))
                left = self.down
                while left:
                    left -= len(client.recv(left))
                time.sleep(self.think)
            client.shutdown(socket.SHUT_WR)
            client.recv(1)

    def captured(self, path: Path) -> tuple[Captured, Captured]:
        with shaped_pair(), far_server(self.server(THERE)), capture(path, PORT):
            self.run_client((THERE, PORT))
        return read_capture(path)

    async def modelled(self) -> LinkSummary:
        """The same client and server program, with the proxy between them."""
        with near_server(self.server("127.0.0.1")):
            spec = LinkSpec(50, 50, delay_ms=0.1)
            async with Shaper(spec, listen=("127.0.0.1", 0), to=("127.0.0.1", PORT)) as shaper:
                await asyncio.to_thread(self.run_client, shaper.address)
                await asyncio.sleep(0.3)
                return shaper.summary()


LONE_ACK = 52
MOST_QUICK_ACKS = 8


@needs_tools
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize(
    "traffic",
    [
        # Payloads of a tuned gRPC round. At once: ACKs ride. After 60 ms: a lone ACK each.
        Traffic("answers at once", 47, 34, 0.0, 60),
        Traffic("answers after 60 ms", 47, 34, 0.06, 40),
        Traffic("bulk up", 60_000, 1, 0.0, 1),
        Traffic("bulk down", 100, 60_000, 0.0, 1),
    ],
    ids=lambda traffic: traffic.name.replace(" ", "-"),
)
async def test_modelled_bytes_equal_a_capture(traffic: Traffic, tmp_path: Path) -> None:
    """Only lone ACKs may differ: Linux sends a few undelayed ones while a connection is young."""
    up, down = await asyncio.to_thread(traffic.captured, tmp_path / "capture.pcap")
    modelled = await traffic.modelled()
    log.warning("%s: captured up %s, down %s; modelled %s", traffic.name, up, down, modelled)
    for captured, wire, packets in (
        (up, modelled.up_wire, modelled.up_packets),
        (down, modelled.down_wire, modelled.down_packets),
    ):
        assert captured.wire - wire == LONE_ACK * (captured.packets - packets)
        assert abs(captured.packets - packets) <= MOST_QUICK_ACKS
