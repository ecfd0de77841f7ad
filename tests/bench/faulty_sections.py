"""Sections with faults, for a process of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from acespec.bench.device_figures import Figure


def _one(name: str) -> Figure:
    return Figure(name, 1.0, "thing")


def _good() -> Iterator[Figure]:
    yield _one("good")


def _raises() -> Iterator[Figure]:
    yield _one("before the fault")
    raise RuntimeError("an illegal address")


def _dies() -> Iterator[Figure]:
    yield _one("before the end")
    os._exit(3)


def _hangs() -> Iterator[Figure]:
    yield _one("before the silence")
    time.sleep(60)
    yield _one("never")


@contextmanager
def sections(profile_out: Path | None) -> Iterator[Mapping[str, Callable[[], Iterator[Figure]]]]:
    if profile_out is not None:
        raise RuntimeError("the device is lost from the start")
    yield {"good": _good, "raises": _raises, "dies": _dies, "hangs": _hangs, "good again": _good}
