"""The body of `acespec-sim link`: options to a spec, a shaper until a signal, and its report."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from acespec.sim.log_check import LinkSummary
from acespec.sim.outages import Outage
from acespec.sim.shaper import Lateness, Shaper
from acespec.sim.sockets import format_address, parse_address
from acespec.sim.spec import LinkSpec


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """A preset and what overrides it; None keeps the preset's value."""

    preset: str
    rate_up_kbps: float | None = None
    rate_down_kbps: float | None = None
    delay_ms: float | None = None
    jitter_ms: float | None = None
    loss_percent: float | None = None
    queue_bytes: int | None = None
    mtu: int | None = None
    outages: tuple[str, ...] = ()
    seed: int = 0

    def spec(self) -> LinkSpec:
        """The link asked for. Raises UsageError."""
        base = LinkSpec.preset(self.preset)
        return replace(
            base,
            rate_up_kbps=_chosen(self.rate_up_kbps, base.rate_up_kbps),
            rate_down_kbps=_chosen(self.rate_down_kbps, base.rate_down_kbps),
            delay_ms=_chosen(self.delay_ms, base.delay_ms),
            jitter_ms=_chosen(self.jitter_ms, base.jitter_ms),
            loss_percent=_chosen(self.loss_percent, base.loss_percent),
            queue_bytes=_chosen(self.queue_bytes, base.queue_bytes),
            mtu=_chosen(self.mtu, base.mtu),
            outages=tuple(Outage.parse(text) for text in self.outages),
            seed=self.seed,
        )


_Number = TypeVar("_Number", int, float)


def _chosen(given: _Number | None, default: _Number) -> _Number:
    return default if given is None else given


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
        return (
            f"{self.spec.name}: up {s.up_wire} B ({s.up_payload} payload), down {s.down_wire} B ({s.down_payload}); "
            f"most in any second: up {s.up_peak_kbps_1s:.2f} of {self.spec.rate_up_kbps:g} Kbps, "
            f"down {s.down_peak_kbps_1s:.2f} of {self.spec.rate_down_kbps:g}"
            f"{'' if self.rate_ok else ' - RATE EXCEEDED'}; "
            f"lost {s.lost}; late by {self.lateness.mean_ms:.1f} ms on average, {self.lateness.max_ms:.1f} at most"
        )

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


def run_link(options: LinkOptions, *, listen: str, to: str, log: Path | None) -> LinkReport:
    """Serves until SIGINT or SIGTERM. Raises UsageError before it serves, never after."""
    shaper = Shaper(options.spec(), listen=parse_address(listen), to=parse_address(to), log=log, command=sys.argv)
    return asyncio.run(_serve(shaper))


async def _serve(shaper: Shaper) -> LinkReport:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with shaper:
        sys.stderr.write(f"ready {format_address(shaper.address)}\n")
        sys.stderr.flush()
        await stop.wait()
    return LinkReport(shaper.spec, shaper.summary(), shaper.lateness())
