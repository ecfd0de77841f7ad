"""Keeps our own log quiet while faults are rehearsed on purpose."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def quiet(level: int) -> Iterator[None]:
    """Log nothing of ours below `level` until the context ends."""
    logger = logging.getLogger("acespec")
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
