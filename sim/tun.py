"""The `tun` backend: two network namespaces with the modelled link between them, for real packets of any protocol.

    async with TunLink(LinkSpec.preset("wan50"), log="link.jsonl") as link:
        server = await link.run("cloud", ["iperf3", "-s"])
        await link.until_listening("cloud", 5201)
        client = await link.run("edge", ["iperf3", "-c", link.cloud_ip])
        await client.wait()

TCP is the kernel's own, with its congestion control, ACKs and retransmissions; the link drops what its queue cannot
hold. Needs Linux, root and iproute2. Namespaces and devices go when the block ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Literal, Self

from acespec.proto.errors import UsageError
from acespec.sim.clock import Clock
from acespec.sim.forwarder import Forwarder, LatenessMeter
from acespec.sim.log_check import LinkSummary
from acespec.sim.namespaces import CLOUD_IP, EDGE_IP, Namespace, remove_stale, require_namespaces
from acespec.sim.packet_log import PacketLog, PacketRecord
from acespec.sim.shaper import LinkState
from acespec.sim.spec import LinkSpec
from acespec.sim.tun_device import TunDevice

Side = Literal["edge", "cloud"]
Stream = int | IO[bytes] | None
LISTENING = "0A"
POLL_S = 0.05


class TunLink:
    """The link, while the block runs. `on_packet` hears of every packet, in the event loop, as it is booked.

    Raises UsageError on entering, saying what is missing, where there is no root, `ip` or /dev/net/tun.
    """

    edge_ip = EDGE_IP
    cloud_ip = CLOUD_IP

    def __init__(
        self,
        spec: LinkSpec,
        *,
        log: str | os.PathLike[str] | None = None,
        command: Sequence[str] = (),
        on_packet: Callable[[PacketRecord], None] | None = None,
    ) -> None:
        self.spec = spec
        self._log_path = log
        self._command = command
        self._on_packet = on_packet
        self._processes: list[asyncio.subprocess.Process] = []
        self.namespaces: dict[Side, Namespace] = {}
        """The two sides, once entered."""

    async def __aenter__(self) -> Self:
        require_namespaces()
        remove_stale()
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            log = self._open_log(stack)
            devices = {side: self._open_side(stack, side) for side in ("edge", "cloud")}

            def record(packet: PacketRecord) -> None:
                if log is not None:
                    log.write(packet)
                if self._on_packet is not None:
                    loop.call_soon_threadsafe(self._on_packet, packet)

            self._forwarder = Forwarder(self.spec, devices["edge"], devices["cloud"], Clock(), record)
            self._forwarder.start()
            stack.callback(self._forwarder.stop)
            # Programs end while there still is a link, so that both sides hear of it.
            for namespace in self.namespaces.values():
                stack.callback(namespace.terminate_programs)
            self._everything = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Without a pause in which to be cancelled: nothing may be left behind.
        self._everything.close()
        await asyncio.gather(*(process.wait() for process in self._processes))
        if error is None and self._forwarder.failure is not None:
            raise UsageError(f"the link broke down: {self._forwarder.failure}") from self._forwarder.failure

    def command(self, side: Side, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` on that side; for other means of starting it than `run`."""
        return self.namespaces[side].command(argv)

    async def run(
        self,
        side: Side,
        argv: Sequence[str],
        *,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        env: Mapping[str, str] | None = None,
        detached: bool = False,
    ) -> asyncio.subprocess.Process:
        """Starts a program on that side; streams as for `subprocess`. It is terminated with the link at the latest.

        A `detached` program gets a session of its own, so that Ctrl-C does not reach it.
        """
        process = await asyncio.create_subprocess_exec(
            *self.command(side, argv), stdin=stdin, stdout=stdout, stderr=stderr, env=env, start_new_session=detached
        )
        self._processes.append(process)
        return process

    async def until_listening(self, side: Side, port: int, timeout_s: float = 30.0) -> None:
        """Returns once something listens on that TCP port there; asks the kernel, so no packet moves.

        Raises UsageError after `timeout_s`.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not await self._listens(side, port):
            if asyncio.get_running_loop().time() > deadline:
                raise UsageError(f"nothing listens on port {port} of the {side} after {timeout_s:g} s")
            await asyncio.sleep(POLL_S)

    def summary(self) -> LinkSummary:
        """What the link has carried so far; IP bytes only, for payload is not looked at."""
        return self._forwarder.summary()

    def lateness(self) -> LatenessMeter:
        """How late deliveries were so far. They never are early."""
        return self._forwarder.lateness()

    def state(self) -> LinkState:
        """The link as it is now."""
        return LinkState(*self._forwarder.look())

    async def _listens(self, side: Side, port: int) -> bool:
        tables = ["/proc/net/tcp", "/proc/net/tcp6"]
        process = await asyncio.create_subprocess_exec(
            *self.command(side, ["cat", *tables]), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        table, _ = await process.communicate()
        rows = (line.split() for line in table.decode().splitlines())
        return any(row[1].endswith(f":{port:04X}") and row[3] == LISTENING for row in rows if len(row) > 3)

    def _open_log(self, stack: ExitStack) -> PacketLog | None:
        if self._log_path is None:
            return None
        log = PacketLog(self._log_path, self.spec, self._command)
        stack.callback(log.close)
        return log

    def _open_side(self, stack: ExitStack, side: Side) -> TunDevice:
        device = TunDevice()
        stack.callback(device.close)
        namespace = self.namespaces[side] = stack.enter_context(Namespace(side))
        own, peer = (self.edge_ip, self.cloud_ip) if side == "edge" else (self.cloud_ip, self.edge_ip)
        device.move_into(namespace, mtu=self.spec.mtu, own=own, peer=peer)
        return device
