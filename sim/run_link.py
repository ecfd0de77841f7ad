"""The body of `acespec-sim link`: a shaper until a signal, its live status and its report."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from acespec.sim.line import Direction
from acespec.sim.link_options import LinkOptions
from acespec.sim.log_check import LinkSummary
from acespec.sim.shaper import Lateness, Shaper
from acespec.sim.sockets import format_address, parse_address
from acespec.sim.spec import LinkSpec
from acespec.sim.status_line import StatusLine

__all__ = ["LinkOptions", "LinkReport", "run_link"]


@dataclass(frozen=True, slots=True)
class LinkReport:
    """What a run of the link carried, and whether it kept to its rate."""

    spec: LinkSpec
    summary: LinkSummary
    lateness: Lateness

    @property
    def rate_ok(self) -> bool:
        """Whether no second carried more than the rate."""
        return self.summary.rate_ok(self.spec)

    def line(self) -> str:
        """One line for a person. Bytes are IP bytes, headers and ACKs included; payload in brackets."""
        s = self.summary
        refused = f", refused {s.refused}" if s.refused else ""
        return (
            f"{self.spec.name}: up {s.up_wire} B ({s.up_payload} payload), down {s.down_wire} B ({s.down_payload}); "
            f"most in any second: up {s.up_peak_kbps_1s:.2f} of {self._rate('up')} Kbps, "
            f"down {s.down_peak_kbps_1s:.2f} of {self._rate('down')}"
            f"{'' if self.rate_ok else ' - RATE EXCEEDED'}; lost {s.lost}{refused}; "
            f"late by {self.lateness.mean_ms:.1f} ms on average, {self.lateness.max_ms:.1f} at most"
        )

    def _rate(self, direction: Direction) -> str:
        mean, peak = self.spec.mean_kbps(direction), self.spec.peak_kbps(direction)
        varies = "" if mean == peak else f" (mean; at most {peak:g})"
        burst = f" and a burst of {self.spec.burst_bytes} B" if self.spec.mode == "police" else ""
        return f"{mean:g}{varies}{burst}"

    def json(self) -> str:
        """The same for machines."""
        return json.dumps(
            {
                "spec": self.spec.as_json(),
                "summary": self.summary.as_json(),
                "rate_ok": self.rate_ok,
                "lateness": {"mean_ms": self.lateness.mean_ms, "max_ms": self.lateness.max_ms},
            }
        )


def run_link(options: LinkOptions, *, listen: str, to: str, log: Path | None, status: bool | None = None) -> LinkReport:
    """Serves until SIGINT or SIGTERM. `status` None shows the live line if stderr is a terminal.

    Raises UsageError before it serves, never after.
    """
    live = StatusLine() if status or (status is None and sys.stderr.isatty()) else None
    shaper = Shaper(
        options.spec(),
        listen=parse_address(listen),
        to=parse_address(to),
        log=log,
        command=sys.argv,
        on_packet=None if live is None else live.add,
    )
    return asyncio.run(_serve(shaper, live))


async def _serve(shaper: Shaper, live: StatusLine | None) -> LinkReport:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with shaper:
        sys.stderr.write(f"ready {format_address(shaper.address)}\n")
        sys.stderr.flush()
        async with _shown(live, shaper):
            await stop.wait()
    return LinkReport(shaper.spec, shaper.summary(), shaper.lateness())


@asynccontextmanager
async def _shown(live: StatusLine | None, shaper: Shaper) -> AsyncIterator[None]:
    if live is None:
        yield
        return
    showing = asyncio.create_task(live.show(shaper, sys.stderr))
    try:
        yield
    finally:
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing
