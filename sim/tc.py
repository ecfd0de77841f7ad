"""The `tc` backend: a link as commands for the kernel's own queues, netem before all. Printed, applied or removed.

One machine shapes both ways on one device: what leaves on the device itself, what comes in on an intermediate one (ifb)
to which it is redirected. netem with a rate is a serialiser like ours and keeps the order. What differs: its queue is
bounded in packets, those under way in the delay included; jitter is normal, not exponential, with the same mean and
deviation; what is drawn follows no seed. A policed link is a token bucket behind netem's delay. Rates that vary,
outages and half-duplex lines cannot be said in `tc` at all.
"""

from __future__ import annotations

import math
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from acespec.proto.errors import UsageError
from acespec.sim.line import Direction
from acespec.sim.loss import GilbertElliott
from acespec.sim.namespaces import INSTEAD, Namespace, find_tool, require_namespaces
from acespec.sim.spec import LinkSpec
from acespec.sim.tun import Side
from acespec.sim.units import SECOND, bps_from_kbps, serialisation_ns

ETHERNET = 14
ARPHRD_ETHER, ARPHRD_LOOPBACK = 1, 772
LONGEST_DEVICE_NAME = 15
NO_RATE = " rate 10gbit"
"""netem keeps the order of packets only where it has a rate."""
DEEP = 1000
"""Packets that a child queue may hold: never the bound that binds."""


@dataclass(frozen=True, slots=True)
class Shaping:
    """A link on a device: `dev` is on the machine of `side`, whose other side is behind it.

    `frame_header` is what the device counts besides the IP packet. `packet_bytes` is the packet size by which the queue
    of so many bytes becomes one of so many packets; None means full packets. Raises UsageError for what `tc` cannot do.
    """

    spec: LinkSpec
    dev: str
    side: Side = "edge"
    frame_header: int = ETHERNET
    packet_bytes: int | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.dev) <= LONGEST_DEVICE_NAME or any(c.isspace() or c == "/" for c in self.dev):
            raise UsageError(f"{self.dev!r} is no name of a network device: `ip link` lists them")
        cannot = [
            what
            for what, asked in (
                ("a rate that varies", self.spec.rate_up is not None or self.spec.rate_down is not None),
                ("a delay that changes", bool(self.spec.delay_steps)),
                ("outages", bool(self.spec.outages) or self.spec.on_off is not None),
                ("a half-duplex line", self.spec.half_duplex),
            )
            if asked
        ]
        if cannot:
            raise UsageError(
                f"{self.spec.name} has {' and '.join(cannot)}, which tc cannot express: use tun or the proxy"
            )

    @property
    def ifb(self) -> str:
        """The intermediate device for what comes in."""
        return f"ace{self.dev}"[:LONGEST_DEVICE_NAME]

    @property
    def outgoing(self) -> Direction:
        """The direction that leaves on `dev`."""
        return "up" if self.side == "edge" else "down"

    def commands(self) -> list[str]:
        """What to run to have the link."""
        incoming: Direction = "down" if self.outgoing == "up" else "up"
        return [
            *self._queues(self.dev, self.outgoing),
            f"ip link add name {self.ifb} type ifb",
            f"ip link set dev {self.ifb} up",
            f"tc qdisc add dev {self.dev} handle ffff: ingress",
            f"tc filter add dev {self.dev} parent ffff: protocol all u32 match u32 0 0 "
            f"action mirred egress redirect dev {self.ifb}",
            *self._queues(self.ifb, incoming),
        ]

    def removal(self) -> list[str]:
        """What to run to be rid of it."""
        return [
            f"tc qdisc del dev {self.dev} root",
            f"tc qdisc del dev {self.dev} ingress",
            f"ip link del dev {self.ifb}",
        ]

    def limit_packets(self, direction: Direction) -> int:
        """netem's limit: the queue, the packet in service, and what the delay holds, in packets."""
        size = self.packet_bytes or self.spec.mtu
        longest_delay = self.spec.delay_ms + 4 * self.spec.jitter_ms
        in_delay = math.ceil(self.spec.mean_kbps(direction) * longest_delay / 8 / size)
        return max(1, self.spec.queue_bytes // size) + 1 + in_delay

    def _queues(self, dev: str, direction: Direction) -> Iterator[str]:
        policed = self.spec.mode == "police"
        bits = bps_from_kbps(self.spec.mean_kbps(direction))
        rate = NO_RATE if policed else f" rate {bits}bit {-self.frame_header}"
        limit = DEEP if policed else self.limit_packets(direction)
        yield f"tc qdisc add dev {dev} root handle 1: netem limit {limit}{self._delay()}{self._loss()}{rate}"
        if policed:
            frame = self.spec.mtu + self.frame_header
            child = f"tbf rate {bits}bit burst {self.spec.burst_bytes} limit {frame}"
        else:
            child = f"pfifo limit {DEEP}"
        yield f"tc qdisc add dev {dev} parent 1:1 handle 10: {child}"

    def _delay(self) -> str:
        """Our jitter comes on top of the delay, with a mean equal to its deviation: netem's delay is the mean."""
        if self.spec.jitter_ms == 0:
            return f" delay {_microseconds(self.spec.delay_ms)}"
        mean, deviation = self.spec.delay_ms + self.spec.jitter_ms, self.spec.jitter_ms
        return f" delay {_microseconds(mean)} {_microseconds(deviation)} distribution normal"

    def _loss(self) -> str:
        match self.spec.loss:
            case GilbertElliott() as channel:
                numbers = (channel.p, channel.r, channel.loss_bad, channel.loss_good)
                return " loss gemodel " + " ".join(f"{100 * number:g}%" for number in numbers)
            case 0:
                return ""
            case percent:
                return f" loss random {percent:g}%"


@dataclass(frozen=True, slots=True)
class Feature:
    """Something the kernel must have; `trial` are commands that work only where it does."""

    name: str
    option: str
    trial: tuple[str, ...]


FEATURES = (
    Feature(
        "netem", "CONFIG_NET_SCH_NETEM (module sch_netem)", ("tc qdisc add dev lo root netem delay 1ms rate 1mbit",)
    ),
    Feature(
        "tbf",
        "CONFIG_NET_SCH_TBF (module sch_tbf)",
        ("tc qdisc add dev lo root tbf rate 1mbit burst 1600 limit 1600",),
    ),
    Feature("ifb", "CONFIG_IFB (module ifb)", ("ip link add name ifbtry type ifb",)),
    Feature("ingress", "CONFIG_NET_SCH_INGRESS (module sch_ingress)", ("tc qdisc add dev lo handle ffff: ingress",)),
    Feature(
        "redirection",
        "CONFIG_NET_CLS_U32 and CONFIG_NET_ACT_MIRRED (modules cls_u32, act_mirred)",
        (
            "tc qdisc add dev lo handle ffff: ingress",
            "tc filter add dev lo parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev lo",
        ),
    ),
)


def missing_features(spec: LinkSpec) -> list[Feature]:
    """What this kernel lacks for that link, found by trying in a scratch namespace. Raises UsageError without root."""
    require_namespaces()
    if find_tool("tc") is None:
        raise UsageError("the command `tc` is missing: install iproute2")
    needed = [feature for feature in FEATURES if feature.name != "tbf" or spec.mode == "police"]
    return [feature for feature in needed if not _works(feature)]


def explain(missing: Sequence[Feature]) -> str:
    """One line on what is missing and what to do."""
    parts = ", ".join(f"{feature.name} needs {feature.option}" for feature in missing)
    return f"this kernel cannot do it: {parts}; use another kernel, or `acespec-sim tun`, {INSTEAD}"


def apply(shaping: Shaping) -> None:
    """Runs the commands; if one fails, undoes the others. Raises UsageError saying what is missing or went wrong."""
    if missing := missing_features(shaping.spec):
        raise UsageError(explain(missing))
    _require_device(shaping.dev)
    done: list[str] = []
    for command in shaping.commands():
        if failure := _run(command):
            for step in shaping.removal() if done else ():
                _run(step)
            raise UsageError(f"`{command}` failed ({failure}): is {shaping.dev} shaped already? `--remove` undoes that")
        done.append(command)


def remove(shaping: Shaping) -> None:
    """Removes what `apply` made. Raises UsageError if there is nothing of it, or some of it cannot be removed."""
    require_namespaces()
    _require_device(shaping.dev)
    # Queues that somebody else has put on the device are left alone.
    if not _exists(shaping.ifb):
        raise UsageError(f"{shaping.dev} is not shaped by us (it has no {shaping.ifb}): nothing to remove")
    failures = [f"`{command}`: {failure}" for command in shaping.removal() if (failure := _run(command))]
    if failures:
        raise UsageError(f"not all of the link could be removed: {'; '.join(failures)}")


def frame_header(dev: str) -> int:
    """Bytes that a device counts ahead of the IP packet; Ethernet's if the device is not on this machine."""
    with suppress(OSError, ValueError):
        kind = int(Path(f"/sys/class/net/{dev}/type").read_text(encoding="ascii"))
        return ETHERNET if kind in (ARPHRD_ETHER, ARPHRD_LOOPBACK) else 0
    return ETHERNET


def notes(shaping: Shaping) -> list[str]:
    """What a reader of the commands should know, a line each."""
    spec = shaping.spec
    full = serialisation_ns(spec.mtu, bps_from_kbps(spec.mean_kbps(shaping.outgoing))) / SECOND
    size = shaping.packet_bytes or spec.mtu
    lines = [f"{spec.name}: {shaping.outgoing} leaves on {shaping.dev}; a full packet takes {full:.3g} s"]
    if spec.mode == "police":
        lines.append(f"policed: a bucket of {spec.burst_bytes} B, and nothing may wait but one packet")
    else:
        lines.append(f"netem's limit counts packets: {spec.queue_bytes} B of queue are taken as packets of {size} B")
    if spec.jitter_ms:
        lines.append("jitter is normal here (the model's is exponential): delays may fall below the link's floor")
    lines.append(f"packets must not be merged: ethtool -K {shaping.dev} tso off gso off gro off")
    return lines


def _works(feature: Feature) -> bool:
    with Namespace("trial") as namespace:
        return not any(_run(command, namespace) for command in feature.trial)


def _run(command: str, namespace: Namespace | None = None) -> str:
    """What went wrong, or an empty string."""
    tool, *arguments = shlex.split(command)
    inside = ["-n", namespace.name] if namespace is not None else []
    done = subprocess.run([find_tool(tool) or tool, *inside, *arguments], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or f"status {done.returncode}"


def _require_device(dev: str) -> None:
    if not _exists(dev):
        raise UsageError(f"there is no network device {dev} here: `ip link` lists them")


def _exists(dev: str) -> bool:
    return Path(f"/sys/class/net/{dev}").exists()


def _microseconds(milliseconds: float) -> str:
    return f"{round(milliseconds * 1000)}us"
