"""One process at a time works on one model; the others wait and then find it done."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from acespec.models.paths import locks_root
from acespec.models.staging import disk_errors

_log = logging.getLogger(__name__)


@contextmanager
def model_lock(name: str) -> Iterator[None]:
    """Hold the lock of the model `name`; the operating system frees it if this process dies."""
    from filelock import FileLock, Timeout

    folder = locks_root()
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{name.replace('/', '--')}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            _log.warning("another process is fetching %s; waiting for it", name)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
