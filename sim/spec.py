"""What a link is: rates, delay, jitter, loss, queue, headers, outages. Data only, checked once, in human units."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Literal

from acespec.proto.errors import UsageError
from acespec.sim.delay import DelayStep, ascend, is_delay
from acespec.sim.line import Direction
from acespec.sim.loss import GilbertElliott, LossSpec
from acespec.sim.outages import OnOff, Outage
from acespec.sim.rate import FASTEST_KBPS, RateSpec, VaryingRate

SMALLEST_MTU = 128
"""Below this, headers outweigh payload and the header model means little."""

Mode = Literal["queue", "police"]


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """One edge's link. `up` is edge to cloud. Kbps are 1000 bit/s of IP bytes; times are milliseconds.

    `delay_ms` is one way, so the round trip without serialisation is twice that. `jitter_ms` is the standard
    deviation of the extra one-way delay, which is never negative. `loss_percent` is independent per packet.
    `queue_bytes` bounds what waits behind the packet in service, per direction. `overhead_bytes` are the IP and TCP
    headers of one packet: 20 + 20 + 12 for timestamps. `delay_steps` change the delay at known times, in order.

    Where a model replaces a constant, the constant states its mean, so that whoever needs one number has it:
    `rate_up`, `rate_down` for varying rates, `burst_loss` for losses with memory (`varied` sets both). `on_off` adds
    outages at random. With `mode` "police", what exceeds the rate and `burst_bytes` is dropped and nothing queues.
    `tcp_backoff` lets a stream that meets an outage resume only when TCP's timer fires. All that is random comes from
    `seed`. Raises UsageError naming the field that makes no sense.
    """

    rate_up_kbps: float
    rate_down_kbps: float
    delay_ms: float
    jitter_ms: float = 0.0
    loss_percent: float = 0.0
    queue_bytes: int = 3000
    mtu: int = 1500
    overhead_bytes: int = 52
    outages: tuple[Outage, ...] = ()
    half_duplex: bool = False
    seed: int = 0
    name: str = "custom"
    rate_up: VaryingRate | None = None
    rate_down: VaryingRate | None = None
    burst_loss: GilbertElliott | None = None
    on_off: OnOff | None = None
    mode: Mode = "queue"
    burst_bytes: int = 6000
    tcp_backoff: bool = False
    delay_steps: tuple[DelayStep, ...] = ()

    def __post_init__(self) -> None:
        for field in ("rate_up_kbps", "rate_down_kbps"):
            self._require(0.001 <= getattr(self, field) <= FASTEST_KBPS, field, "between 0.001 and 1e9 Kbps")
        for field in ("delay_ms", "jitter_ms"):
            self._require(is_delay(getattr(self, field)), field, "between 0 and 1e7 ms")
        self._require(ascend(self.delay_steps), "delay_steps", "in order of time")
        self._require(0 <= self.loss_percent <= 100, "loss_percent", "between 0 and 100")
        self._require(0 <= self.overhead_bytes <= SMALLEST_MTU // 2, "overhead_bytes", f"0 to {SMALLEST_MTU // 2}")
        self._require(SMALLEST_MTU <= self.mtu <= 65535, "mtu", f"{SMALLEST_MTU} to 65535 bytes")
        self._require(self.queue_bytes >= self.mtu, "queue_bytes", f"at least one full packet ({self.mtu} bytes)")
        self._require(self.mode in ("queue", "police"), "mode", "queue or police")
        if self.mode == "police":
            self._require(self.burst_bytes >= self.mtu, "burst_bytes", f"at least one full packet ({self.mtu} bytes)")
            self._require(not self.half_duplex, "half_duplex", "false where mode is police: a policer has no line")
        if self.rate_up is not None:
            self._require_mean("rate_up_kbps", self.rate_up.mean_kbps, "rate_up")
        if self.rate_down is not None:
            self._require_mean("rate_down_kbps", self.rate_down.mean_kbps, "rate_down")
        if self.burst_loss is not None:
            self._require_mean("loss_percent", self.burst_loss.mean_percent, "burst_loss")

    def _require(self, holds: bool, field: str, wanted: str) -> None:
        if not holds:
            raise UsageError(f"link {field} is {getattr(self, field)}: it must be {wanted}")

    def _require_mean(self, field: str, mean: float, model: str) -> None:
        same = math.isclose(getattr(self, field), mean, rel_tol=1e-6, abs_tol=1e-9)
        self._require(same, field, f"the mean of {model}, {mean:g}; use LinkSpec.varied")

    @classmethod
    def preset(cls, name: str) -> LinkSpec:
        """The spec of a named preset (see `acespec.sim.presets`). Raises UsageError listing the names."""
        from acespec.sim.presets import find_preset

        return find_preset(name).spec

    def varied(
        self, *, rate_up: RateSpec | None = None, rate_down: RateSpec | None = None, loss: LossSpec | None = None
    ) -> LinkSpec:
        """The same link with other rates or another loss, each a constant or a model; None keeps what there is."""
        spec = self
        if rate_up is not None:
            varying = None if isinstance(rate_up, (int, float)) else rate_up
            spec = replace(spec, rate_up=varying, rate_up_kbps=_mean_kbps(rate_up))
        if rate_down is not None:
            varying = None if isinstance(rate_down, (int, float)) else rate_down
            spec = replace(spec, rate_down=varying, rate_down_kbps=_mean_kbps(rate_down))
        if isinstance(loss, GilbertElliott):
            spec = replace(spec, burst_loss=loss, loss_percent=loss.mean_percent)
        elif loss is not None:
            spec = replace(spec, burst_loss=None, loss_percent=loss)
        return spec

    def rate(self, direction: Direction) -> RateSpec:
        """The rate of that direction: Kbps or a model."""
        varying = self.rate_up if direction == "up" else self.rate_down
        return varying if varying is not None else self.mean_kbps(direction)

    def mean_kbps(self, direction: Direction) -> float:
        """The rate of that direction in the long run."""
        return self.rate_up_kbps if direction == "up" else self.rate_down_kbps

    def peak_kbps(self, direction: Direction) -> float:
        """The highest rate that direction ever has."""
        rate = self.rate(direction)
        return rate if isinstance(rate, (int, float)) else rate.peak_kbps

    @property
    def loss(self) -> LossSpec:
        """The loss: percent or a model."""
        return self.loss_percent if self.burst_loss is None else self.burst_loss

    @property
    def mss(self) -> int:
        """Stream bytes that fit one packet."""
        return self.mtu - self.overhead_bytes

    @property
    def rtt_ms(self) -> float:
        """Round trip without serialisation and jitter, before any step of the delay."""
        return 2 * self.delay_ms

    def as_json(self) -> dict[str, object]:
        """Plain data for logs and reports; `acespec.sim.spec_reader` reads it back."""
        return asdict(self)


def _mean_kbps(rate: RateSpec) -> float:
    return rate if isinstance(rate, (int, float)) else rate.mean_kbps
