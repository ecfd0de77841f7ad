"""The options of `acespec-sim link`, and the spec that they ask for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from acespec.proto.errors import UsageError
from acespec.sim.link_file import read_link_file
from acespec.sim.loss import LossSpec, parse_loss
from acespec.sim.outages import OnOff, Outage
from acespec.sim.rate import RateSpec
from acespec.sim.rate_trace import read_rate_trace
from acespec.sim.spec import LinkSpec

DEFAULT_PRESET = "wan50"


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """A preset or a link file, and what overrides it; None keeps its value."""

    preset: str | None = None
    rate_up_kbps: float | None = None
    rate_down_kbps: float | None = None
    delay_ms: float | None = None
    jitter_ms: float | None = None
    loss_percent: float | None = None
    queue_bytes: int | None = None
    mtu: int | None = None
    outages: tuple[str, ...] = ()
    seed: int | None = None
    link_file: Path | None = None
    rate_trace_up: Path | None = None
    rate_trace_down: Path | None = None
    scale_to_kbps: float | None = None
    loss_model: str | None = None
    on_off: str | None = None
    police: bool = False
    burst_bytes: int | None = None

    def spec(self) -> LinkSpec:
        """The link asked for. Raises UsageError."""
        base = self._base()
        varied = base.varied(
            rate_up=self._rate("up", self.rate_up_kbps, self.rate_trace_up),
            rate_down=self._rate("down", self.rate_down_kbps, self.rate_trace_down),
            loss=self._loss(),
        )
        if self.scale_to_kbps is not None and self.rate_trace_up is None and self.rate_trace_down is None:
            raise UsageError("--scale-to-kbps scales traces: give --rate-trace-up or --rate-trace-down")
        return replace(
            varied,
            delay_ms=_chosen(self.delay_ms, base.delay_ms),
            jitter_ms=_chosen(self.jitter_ms, base.jitter_ms),
            queue_bytes=_chosen(self.queue_bytes, base.queue_bytes),
            mtu=_chosen(self.mtu, base.mtu),
            outages=tuple(Outage.parse(text) for text in self.outages) or base.outages,
            on_off=base.on_off if self.on_off is None else OnOff.parse(self.on_off),
            mode="police" if self.police else base.mode,
            burst_bytes=_chosen(self.burst_bytes, base.burst_bytes),
            seed=_chosen(self.seed, base.seed),
        )

    def _base(self) -> LinkSpec:
        if self.link_file is None:
            return LinkSpec.preset(self.preset or DEFAULT_PRESET)
        if self.preset is not None:
            raise UsageError("--link and --preset exclude each other: name the preset in the link file")
        return read_link_file(self.link_file)

    def _rate(self, direction: str, kbps: float | None, trace: Path | None) -> RateSpec | None:
        if trace is None:
            return kbps
        if kbps is not None:
            raise UsageError(
                f"--rate-{direction}-kbps and --rate-trace-{direction} exclude each other: use --scale-to-kbps"
            )
        rate = read_rate_trace(trace)
        return rate if self.scale_to_kbps is None else rate.scale_to_mean_kbps(self.scale_to_kbps)

    def _loss(self) -> LossSpec | None:
        if self.loss_model is None:
            return self.loss_percent
        if self.loss_percent is not None:
            raise UsageError("--loss-percent and --loss-model exclude each other: --loss-model iid:PERCENT says both")
        return parse_loss(self.loss_model)


_Number = TypeVar("_Number", int, float)


def _chosen(given: _Number | None, default: _Number) -> _Number:
    return default if given is None else given
