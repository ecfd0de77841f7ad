"""The body of `acespec-sim tun`: a link between namespaces, a command on either side, and the report."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from acespec.proto.errors import UsageError
from acespec.sim.forwarder import LatenessMeter
from acespec.sim.line import Direction
from acespec.sim.link_options import LinkOptions
from acespec.sim.log_check import LinkSummary
from acespec.sim.spec import LinkSpec
from acespec.sim.status_line import ERASE, PERIOD_S, StatusLine
from acespec.sim.tun import TunLink

GRACE_S = 2.0
"""After Ctrl-C the command at the edge, which got it too, may end by itself."""
INTERRUPTED = 130
SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class TunOptions:
    """What runs on the link: `edge` is a command in words, `cloud` one line; None runs nothing there."""

    link: LinkOptions
    edge: tuple[str, ...] = ()
    cloud: str | None = None
    cloud_port: int | None = None
    log: Path | None = None
    status: bool | None = None


@dataclass(frozen=True, slots=True)
class TunReport:
    """What a run carried. `exit_code` is the edge command's."""

    spec: LinkSpec
    summary: LinkSummary
    lateness: LatenessMeter
    exit_code: int

    def line(self) -> str:
        """One line for a person. Bytes are those of IP packets."""
        s, late = self.summary, self.lateness
        exceeded = "" if s.rate_ok(self.spec) else " - RATE EXCEEDED"
        return (
            f"{self.spec.name}: up {s.up_wire} B in {s.up_packets} packets, down {s.down_wire} B in {s.down_packets}; "
            f"most in any second: up {s.up_peak_kbps_1s:.2f} of {self._rate('up')} Kbps, "
            f"down {s.down_peak_kbps_1s:.2f} of {self._rate('down')}{exceeded}; lost {s.lost}, refused {s.refused}; "
            f"late by {late.quantile_ms(0.5):.2f} ms (median), {late.quantile_ms(0.99):.2f} (p99), "
            f"{late.max_ms:.1f} at most"
        )

    def _rate(self, direction: Direction) -> str:
        mean, peak = self.spec.mean_kbps(direction), self.spec.peak_kbps(direction)
        return f"{mean:g}" if mean == peak else f"{mean:g} (mean; at most {peak:g})"

    def json(self) -> str:
        """The same for machines."""
        late = self.lateness
        return json.dumps(
            {
                "spec": self.spec.as_json(),
                "summary": self.summary.as_json(),
                "rate_ok": self.summary.rate_ok(self.spec),
                "lateness": {
                    "mean_ms": late.mean_ms,
                    "p50_ms": late.quantile_ms(0.5),
                    "p99_ms": late.quantile_ms(0.99),
                    "max_ms": late.max_ms,
                },
                "exit_code": self.exit_code,
            }
        )


def run_tun(options: TunOptions) -> TunReport:
    """Runs the commands over the link until that of the edge ends; without one, until SIGINT or SIGTERM.

    Raises UsageError where the link cannot be had, or the cloud's command ends before it listens.
    """
    return asyncio.run(_Session(options).run())


class _Session:
    """One run of the link."""

    def __init__(self, options: TunOptions) -> None:
        self._options = options
        self._live = StatusLine() if self._shows_status() else None
        self._stop = asyncio.Event()
        self._grace_s = 0.0

    async def run(self) -> TunReport:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)
        options = self._options
        on_packet = None if self._live is None else self._live.add
        link = TunLink(options.link.spec(), log=options.log, command=sys.argv, on_packet=on_packet)
        async with link, self._shown(link):
            exit_code = await self._use(link)
            # The last packets of a connection are under way when a program ends.
            await self._until_stopped(link.spec.rtt_ms / 1000)
        return TunReport(link.spec, link.summary(), link.lateness(), exit_code)

    def _on_signal(self, number: signal.Signals) -> None:
        self._grace_s = GRACE_S if number is signal.SIGINT else 0.0
        self._stop.set()

    async def _use(self, link: TunLink) -> int:
        options = self._options
        if options.cloud is not None:
            cloud = await link.run("cloud", shlex.split(options.cloud), detached=True)
            if options.cloud_port is not None and not await self._ready(link, cloud, options.cloud_port):
                return INTERRUPTED
        self._say(link)
        if not options.edge:
            await self._stop.wait()
            return 0
        return await self._outcome(await link.run("edge", options.edge))

    async def _ready(self, link: TunLink, cloud: Process, port: int) -> bool:
        """Whether the cloud listens; False if a signal came first."""
        listening = asyncio.create_task(link.until_listening("cloud", port, timeout_s=float("inf")))
        ended = asyncio.create_task(cloud.wait())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({listening, ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for task in (listening, ended, stopped):
            task.cancel()
        await asyncio.gather(listening, ended, stopped, return_exceptions=True)
        listens = listening.done() and not listening.cancelled()
        if cloud.returncode is not None and not listens:
            raise UsageError(
                f"the cloud command ended with status {cloud.returncode} before it listened on port {port}"
            )
        return listens

    async def _outcome(self, edge: Process) -> int:
        """The exit code of the edge's command; that of an interruption if a signal came first."""
        ended = asyncio.create_task(edge.wait())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ended.done():
            await asyncio.wait({ended}, timeout=self._grace_s)
            ended.cancel()
            return INTERRUPTED
        code = ended.result()
        return code if code >= 0 else SIGNALLED - code

    @asynccontextmanager
    async def _shown(self, link: TunLink) -> AsyncIterator[None]:
        if self._live is None:
            yield
            return
        showing = asyncio.create_task(self._show(self._live, link))
        try:
            yield
        finally:
            showing.cancel()
            with suppress(asyncio.CancelledError):
                await showing

    async def _show(self, live: StatusLine, link: TunLink) -> None:
        terminal = sys.stderr.isatty()
        try:
            while True:
                await asyncio.sleep(PERIOD_S)
                text = live.text(link.state())
                sys.stderr.write(ERASE + text if terminal else text + "\n")
                sys.stderr.flush()
        finally:
            if terminal:
                sys.stderr.write(ERASE)

    async def _until_stopped(self, seconds: float) -> bool:
        """Waits so long, or until a signal; whether there was one."""
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _say(self, link: TunLink) -> None:
        lines = [f"ready: edge {link.edge_ip}, cloud {link.cloud_ip}"]
        if not self._options.edge:
            lines += [f"{side}: ip netns exec {space.name} COMMAND" for side, space in link.namespaces.items()]
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()

    def _shows_status(self) -> bool:
        """Unless told, only while nothing else writes to the terminal."""
        if self._options.status is None:
            return not self._options.edge and sys.stderr.isatty()
        return self._options.status
