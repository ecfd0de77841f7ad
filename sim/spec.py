"""What a link is: rates, delay, jitter, loss, queue, headers, outages. Data only, checked once, in human units."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from acespec.proto.errors import UsageError
from acespec.sim.outages import Outage

SMALLEST_MTU = 128
"""Below this, headers outweigh payload and the header model means little."""


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """One edge's link. `up` is edge to cloud. Kbps are 1000 bit/s of IP bytes; times are milliseconds.

    `delay_ms` is one way, so the round trip without serialisation is twice that. `jitter_ms` is the standard
    deviation of the extra one-way delay, which is never negative. `loss_percent` is independent per packet.
    `queue_bytes` bounds what waits behind the packet in service, per direction. `overhead_bytes` are the IP and TCP
    headers of one packet: 20 + 20 + 12 for timestamps. Raises UsageError naming the field that makes no sense.
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

    def __post_init__(self) -> None:
        for field in ("rate_up_kbps", "rate_down_kbps"):
            self._require(0.001 <= getattr(self, field) <= 1e9, field, "between 0.001 and 1e9 Kbps")
        for field in ("delay_ms", "jitter_ms"):
            value = getattr(self, field)
            self._require(math.isfinite(value) and 0 <= value <= 1e7, field, "between 0 and 1e7 ms")
        self._require(0 <= self.loss_percent <= 100, "loss_percent", "between 0 and 100")
        self._require(0 <= self.overhead_bytes <= SMALLEST_MTU // 2, "overhead_bytes", f"0 to {SMALLEST_MTU // 2}")
        self._require(SMALLEST_MTU <= self.mtu <= 65535, "mtu", f"{SMALLEST_MTU} to 65535 bytes")
        self._require(self.queue_bytes >= self.mtu, "queue_bytes", f"at least one full packet ({self.mtu} bytes)")

    def _require(self, holds: bool, field: str, wanted: str) -> None:
        if not holds:
            raise UsageError(f"link {field} is {getattr(self, field)}: it must be {wanted}")

    @classmethod
    def preset(cls, name: str) -> LinkSpec:
        """The spec of a named preset (see `acespec.sim.presets`). Raises UsageError listing the names."""
        from acespec.sim.presets import find_preset

        return find_preset(name).spec

    @property
    def mss(self) -> int:
        """Stream bytes that fit one packet."""
        return self.mtu - self.overhead_bytes

    @property
    def rtt_ms(self) -> float:
        """Round trip without serialisation and jitter."""
        return 2 * self.delay_ms

    def as_json(self) -> dict[str, object]:
        """Plain data for logs and reports."""
        return asdict(self)
