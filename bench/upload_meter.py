"""What goes up over a shaped link turn by turn, read off its log while it runs."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from acespec.sim.log_check import REFUSED


@dataclass(frozen=True, slots=True)
class Upload:
    """One turn: IP bytes up until the other end had the question, and in all; seconds to the former."""

    question_bytes: int
    turn_bytes: int
    upload_s: float


class Meter:
    """Counts IP bytes by the packet log of one link, and notes when a question was whole at the other end."""

    def __init__(self, log: Path) -> None:
        self._file = log.open(encoding="utf-8")
        self._file.readline()  # The header.
        self._rest = ""
        self._total = 0
        self._before = 0
        self._began = 0.0
        self._whole: tuple[int, float] | None = None

    def begin(self) -> None:
        """A turn begins."""
        self._before, self._whole, self._began = self.total(), None, time.monotonic()

    def whole(self) -> None:
        """The other end has the question. Only the first call of a turn counts."""
        if self._whole is None:
            seconds = time.monotonic() - self._began
            self._whole = self.total() - self._before, seconds

    def end(self) -> Upload:
        """The turn is over."""
        if self._whole is None:
            raise RuntimeError("a turn ended whose question never arrived")
        question, seconds = self._whole
        return Upload(question, self.total() - self._before, seconds)

    def total(self) -> int:
        """IP bytes up so far, those of lost packets included."""
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        for packet in map(json.loads, lines):
            if packet["dir"] == "up" and packet["drop"] not in REFUSED:
                self._total += packet["wire"]
        return self._total

    def close(self) -> None:
        """Close the log."""
        self._file.close()
