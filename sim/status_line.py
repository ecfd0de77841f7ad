"""A live line about the link: Kbps each way, what waits, what was dropped, whether it is down."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TextIO

from acespec.sim.line import Direction
from acespec.sim.packet_log import PacketRecord
from acespec.sim.shaper import LinkState, Shaper
from acespec.sim.units import SECOND

PERIOD_S = 0.5
ERASE = "\r\x1b[K"


class Speedometer:
    """IP bytes a direction carries between two looks, each packet's spread over its time on the line."""

    __slots__ = ("_looked_at", "_packets")

    def __init__(self) -> None:
        self._packets: deque[tuple[int, int, int]] = deque()
        self._looked_at = 0

    def add(self, start: int, finish: int, wire: int) -> None:
        """A packet of `wire` bytes was booked on the line for [start, finish]."""
        self._packets.append((start, max(finish, start + 1), wire))

    def kbps_until(self, now: int) -> float:
        """Mean rate since the last look. Booked packets whose time is still to come wait for the next."""
        begin, self._looked_at = self._looked_at, now
        carried = sum(
            wire * max(0, min(finish, now) - max(start, begin)) / (finish - start)
            for start, finish, wire in self._packets
        )
        while self._packets and self._packets[0][1] <= now:
            self._packets.popleft()
        return carried * 8 * SECOND / max(1, now - begin) / 1000


class StatusLine:
    """`add` hears of every packet (give it to the shaper as `on_packet`); `show` writes until it is cancelled."""

    def __init__(self) -> None:
        self._speed: dict[Direction, Speedometer] = {"up": Speedometer(), "down": Speedometer()}
        self._dropped = 0

    def add(self, record: PacketRecord) -> None:
        """Counts one packet."""
        if record.drop is not None:
            self._dropped += 1
        if record.drop in (None, "loss"):
            self._speed[record.dir].add(record.start, record.finish, record.wire)

    def text(self, state: LinkState) -> str:
        """The line for a state of the link, rates being those since the last one."""
        outage = (
            f" | link down, {(state.up_again - state.now) / SECOND:.1f} s left" if state.up_again > state.now else ""
        )
        return (
            f"up {self._speed['up'].kbps_until(state.now):.1f} Kbps, {state.queued_up} B queued"
            f" | down {self._speed['down'].kbps_until(state.now):.1f} Kbps, {state.queued_down} B queued"
            f" | {self._dropped} dropped{outage}"
        )

    async def show(self, shaper: Shaper, stream: TextIO) -> None:
        """Twice a second: over the line before on a terminal, as a new line elsewhere. Cleans up after itself."""
        terminal = stream.isatty()
        try:
            while True:
                await asyncio.sleep(PERIOD_S)
                text = self.text(shaper.state())
                stream.write(ERASE + text[: _columns(stream) - 1] if terminal else text + "\n")
                stream.flush()
        finally:
            if terminal:
                stream.write(ERASE)
                stream.flush()


def _columns(stream: TextIO) -> int:
    # A pseudo-terminal that nobody has given a size says 0.
    return os.get_terminal_size(stream.fileno()).columns or 80
