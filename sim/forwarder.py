"""Carries real packets over the modelled link: books each as it comes, hands it over at its release, never early.

`Schedule` decides, without clock and descriptors. `Forwarder` is a thread that moves packets between two devices as
the schedule says: it sleeps until the next release or arrival, and after waking looks at the clock again.
"""

from __future__ import annotations

import heapq
import logging
import os
import select
import threading
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from acespec.sim.clock import Clock
from acespec.sim.link import Direction, LinkDirection, Passage, make_link
from acespec.sim.log_check import LinkSummary, Summariser
from acespec.sim.packet_log import PacketRecord, record_of
from acespec.sim.priority import before_others
from acespec.sim.spec import LinkSpec
from acespec.sim.units import MILLISECOND, SECOND

log = logging.getLogger(__name__)

BURST = 32
"""Packets taken from one device before the other is looked at."""
BIN = MILLISECOND // 100


class Schedule:
    """What is under way, in order of release. Times are nanoseconds, given by the caller, never decreasing."""

    def __init__(self, spec: LinkSpec) -> None:
        up, down = make_link(spec)
        self.links: dict[Direction, LinkDirection] = {"up": up, "down": down}
        self._under_way: list[tuple[int, int, Direction, bytes]] = []
        self._count = 0

    def arrived(self, now: int, direction: Direction, packet: bytes) -> PacketRecord:
        """Books a packet as it is: its length is what the link carries."""
        outcome = self.links[direction].offer(now, len(packet), header=0)
        if isinstance(outcome, Passage):
            self._count += 1
            heapq.heappush(self._under_way, (outcome.release, self._count, direction, packet))
        return record_of(now, direction, 0, "packet", len(packet), outcome)

    @property
    def next_release(self) -> int | None:
        """When the next packet is due."""
        return self._under_way[0][0] if self._under_way else None

    def take_due(self, now: int) -> tuple[int, Direction, bytes] | None:
        """The first packet whose release is not after `now`, with that release."""
        if not self._under_way or self._under_way[0][0] > now:
            return None
        release, _, direction, packet = heapq.heappop(self._under_way)
        return release, direction, packet


class LatenessMeter:
    """How late packets were handed over; in memory that does not grow with their number."""

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self.count = self._total = self._max = 0

    def add(self, late: int) -> None:
        """A packet was `late` nanoseconds after its release."""
        self.count += 1
        self._total += late
        self._max = max(self._max, late)
        self._bins[late // BIN] += 1

    @property
    def mean_ms(self) -> float:
        """Mean, in milliseconds."""
        return self._total / max(1, self.count) / MILLISECOND

    @property
    def max_ms(self) -> float:
        """Worst, in milliseconds."""
        return self._max / MILLISECOND

    def quantile_ms(self, share: float) -> float:
        """What that share of packets did not exceed, in milliseconds, to a hundredth."""
        left = share * self.count
        for number in sorted(self._bins):
            left -= self._bins[number]
            if left <= 0:
                return min(self.max_ms, (number + 1) * BIN / MILLISECOND)
        return self.max_ms


class Device(Protocol):
    """One end of the link: whole packets, without blocking."""

    fd: int

    def read(self) -> bytes | None:
        """A packet that this end sends, or None."""

    def write(self, packet: bytes) -> None:
        """A packet that reaches this end. Raises OSError if it does not take it."""


class Forwarder:
    """A thread between `edge` and `cloud`. `record` is called from it, for every packet, as it is booked."""

    def __init__(
        self, spec: LinkSpec, edge: Device, cloud: Device, clock: Clock, record: Callable[[PacketRecord], None]
    ) -> None:
        self._clock = clock
        self._record = record
        self._schedule = Schedule(spec)
        self._from: dict[int, tuple[Direction, Device]] = {edge.fd: ("up", edge), cloud.fd: ("down", cloud)}
        self._to: dict[Direction, Device] = {"up": cloud, "down": edge}
        self._lateness = LatenessMeter()
        self._summariser = Summariser()
        self._lock = threading.Lock()
        self._wake, self._waker = os.pipe()
        self._thread = threading.Thread(target=self._run, name="acespec-link", daemon=True)
        self.untaken = 0
        """Packets that reached the far end but were not taken there: its interface was going down."""
        self.failure: OSError | None = None
        """Why the thread ended, if it was not asked to."""

    def start(self) -> None:
        """From now on packets move."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; what is under way is gone."""
        os.write(self._waker, b"x")
        self._thread.join()
        os.close(self._wake)
        os.close(self._waker)

    def summary(self) -> LinkSummary:
        """What the link has carried so far."""
        with self._lock:
            return self._summariser.result()

    def lateness(self) -> LatenessMeter:
        """How late deliveries were so far; still being written to until `stop`."""
        return self._lateness

    def look(self) -> tuple[int, int, int, int]:
        """Now, bytes waiting up and down, and when an outage, if in one, ends."""
        with self._lock:
            now = self._clock.now()
            up, down = self._schedule.links["up"], self._schedule.links["down"]
            return now, up.waiting_bytes(now), down.waiting_bytes(now), up.up_from(now)

    def _run(self) -> None:
        try:
            with before_others():
                self._move_packets()
        except OSError as error:
            self.failure = error
            log.error("the link broke down: %s", error)

    def _move_packets(self) -> None:
        while True:
            self._deliver()
            ready, _, _ = select.select([self._wake, *self._from], [], [], self._patience())
            if self._wake in ready:
                return
            for fd in ready:
                self._take_in(*self._from[fd])

    def _patience(self) -> float | None:
        # Computed anew each time round: select may end early, and then sleeps again for what is left.
        release = self._schedule.next_release
        return None if release is None else max(0, release - self._clock.now()) / SECOND

    def _take_in(self, direction: Direction, device: Device) -> None:
        for _ in range(BURST):
            packet = device.read()
            if packet is None:
                return
            with self._lock:
                record = self._schedule.arrived(self._clock.now(), direction, packet)
                self._summariser.add(record)
            self._record(record)
            self._deliver()

    def _deliver(self) -> None:
        while due := self._schedule.take_due(now := self._clock.now()):
            release, direction, packet = due
            self._lateness.add(now - release)
            try:
                self._to[direction].write(packet)
            except OSError as error:
                self.untaken += 1
                log.debug("%d bytes %s not taken: %s", len(packet), direction, error)
