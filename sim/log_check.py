"""What a link carried, each way, and whether it kept to its rate; from a log file or from packets in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from acespec.sim.line import DIRECTIONS, Direction
from acespec.sim.packet_log import PacketRecord, read_records
from acespec.sim.rate_meter import RateMeter
from acespec.sim.spec import LinkSpec
from acespec.sim.units import SECOND

ROUNDING = 1e-6
REFUSED = ("queue", "police", "outage")


@dataclass(frozen=True, slots=True)
class LinkSummary:
    """Totals per direction. `wire` is IP bytes put on the link: payload, headers, ACKs, handshakes, retransmissions.

    `payload` counts each stream byte once. `peak_kbps_1s` is the highest rate over any second, bytes spread over their
    time on the line. `refused` are packets that a full queue or a policer turned away, `lost` those lost under way.
    """

    up_wire: int
    down_wire: int
    up_payload: int
    down_payload: int
    up_packets: int
    down_packets: int
    up_peak_kbps_1s: float
    down_peak_kbps_1s: float
    refused: int
    lost: int
    seconds: float

    def rate_ok(self, spec: LinkSpec) -> bool:
        """Whether no second carried more than the spec's highest rate, either way. No slack but rounding.

        A policer may pass its burst besides. For a rate that varies, `acespec.sim.link_check` proves more.
        """
        burst_kbits = spec.burst_bytes * 8 / 1000 if spec.mode == "police" else 0.0
        up, down = (spec.peak_kbps(direction) * (1 + ROUNDING) + burst_kbits for direction in DIRECTIONS)
        return self.up_peak_kbps_1s <= up and self.down_peak_kbps_1s <= down

    def as_json(self) -> dict[str, int | float]:
        """Plain data for reports."""
        return asdict(self)


class _DirectionTotals:
    __slots__ = ("last_finish", "lost", "meter", "packets", "payload", "refused", "wire")

    def __init__(self) -> None:
        self.wire = self.payload = self.packets = self.refused = self.lost = self.last_finish = 0
        self.meter = RateMeter()

    def add(self, record: PacketRecord) -> None:
        if record.drop in REFUSED:
            self.refused += 1
            return
        self.lost += record.drop == "loss"
        self.packets += 1
        self.wire += record.wire
        self.payload += record.bytes if record.kind == "data" else 0
        self.last_finish = max(self.last_finish, record.finish)
        # What a policer passes takes no time on the line: the meter needs it to take some.
        self.meter.add(record.start, max(record.finish, record.start + 1), record.wire)


class Summariser:
    """Running totals in bounded memory: `add` each packet as it is booked, `result` at any time."""

    def __init__(self) -> None:
        self._totals: dict[Direction, _DirectionTotals] = {"up": _DirectionTotals(), "down": _DirectionTotals()}

    def add(self, record: PacketRecord) -> None:
        """Counts one packet; packets come in booking order."""
        self._totals[record.dir].add(record)

    def result(self) -> LinkSummary:
        """Totals so far."""
        up, down = self._totals["up"], self._totals["down"]
        return LinkSummary(
            up_wire=up.wire,
            down_wire=down.wire,
            up_payload=up.payload,
            down_payload=down.payload,
            up_packets=up.packets,
            down_packets=down.packets,
            up_peak_kbps_1s=up.meter.peak_kbps,
            down_peak_kbps_1s=down.meter.peak_kbps,
            refused=up.refused + down.refused,
            lost=up.lost + down.lost,
            seconds=max(up.last_finish, down.last_finish) / SECOND,
        )


def summarise(log: str | os.PathLike[str] | Iterable[PacketRecord]) -> LinkSummary:
    """Totals of a log file, or of packets in booking order. Raises UsageError if the file is no link log."""
    records = read_records(log) if isinstance(log, (str, os.PathLike)) else log
    summariser = Summariser()
    for record in records:
        summariser.add(record)
    return summariser.result()
