"""One line now and then for the operator: what the engine did since the last one."""

from __future__ import annotations

import logging

from acespec.cloud.step import Step
from acespec.cloud.turn_table import TurnTable

log = logging.getLogger(__name__)

EVERY_S = 30.0


class StatusLog:
    """Counts steps and writes a line every `every_s` seconds in which there were any. `now` in seconds."""

    def __init__(self, table: TurnTable, every_s: float = EVERY_S) -> None:
        self._table = table
        self._every_s = every_s
        self._since: float | None = None
        self._forget()

    def stepped(self, now: float, step: Step, seconds: float, tokens: int) -> None:
        """A step took `seconds` and committed `tokens`."""
        self._since = now - seconds if self._since is None else self._since
        self._steps += 1
        self._rows += step.rows
        self._tokens += tokens
        self._busy_s += seconds
        if now - self._since >= self._every_s:
            log.info("%s", self.line(now))
            self._since = now
            self._forget()

    def line(self, now: float) -> str:
        """What there is to say."""
        table, pages = self._table, self._table.pages
        elapsed = max(1e-9, now - self._since) if self._since is not None else 1.0
        turns = table.turns
        return (
            f"{self._tokens / elapsed:.1f} tokens/s, {self._steps / elapsed:.1f} steps/s of "
            f"{self._rows / max(1, self._steps):.1f} rows, busy {100 * self._busy_s / elapsed:.0f} %; "
            f"{len(turns)} turns, {sum(turn.waiting for turn in turns)} waiting for memory, "
            f"overload {table.scheduler.overload.level:.2f}; KV pages {pages.in_use} in use, {pages.cached} cached, "
            f"{pages.free} free, prefix hits {100 * pages.stats.hit_rate:.0f} %, "
            f"{table.residency.evictions} turns evicted"
        )

    def _forget(self) -> None:
        self._steps = self._rows = self._tokens = 0
        self._busy_s = 0.0
