"""Log lines that come while an answer is drawn wait until it is over: they would land in the middle of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Holding(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.records.append(record)


@contextmanager
def held_logs() -> Iterator[None]:
    """Within the block the root logger's records are kept; at its end they go to its handlers."""
    root, holding = logging.getLogger(), _Holding()
    before = list(root.handlers)
    root.handlers[:] = [holding]
    try:
        yield
    finally:
        root.handlers[:] = before
        for record in holding.records:
            root.handle(record)
