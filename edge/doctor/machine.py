"""This machine: Python, clock, room for caches."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from acespec.edge.doctor.finding import Finding, fault, ok, warning
from acespec.models.paths import cache_root

OLDEST_PYTHON = (3, 11)
LITTLE_ROOM = 2 * 2**30
"""Bytes. A small draft model, fetched and converted, takes about as much."""
NO_ROOM = 2**26
CLOCK_SLACK_S = 86_400.0


def machine_findings() -> Iterator[Finding]:
    """Python, clock and caches."""
    yield python_finding(sys.version_info[:2])
    yield clock_finding(time.time(), _installed_at())
    yield cache_finding(cache_root())


def python_finding(running: tuple[int, int]) -> Finding:
    """Whether this Python is one that acespec is made for."""
    name = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"
    if running < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return fault("python", f"{name} is too old", f"install Python {wanted} or newer, and acespec into it")
    return ok("python", name)


def clock_finding(now: float, installed: float) -> Finding:
    """Whether the clock can be right; certificates are judged by it. Both in seconds since 1970."""
    shown = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now))
    if now < installed - CLOCK_SLACK_S:
        return fault(
            "clock",
            f"it is {shown} by this machine's clock, before acespec was installed: certificates will seem invalid",
            "set the clock, or switch on setting it from the network",
        )
    return ok("clock", shown)


def cache_finding(folder: Path) -> Finding:
    """Whether models and counts can be kept in `folder`."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return fault("cache", f"{folder} cannot be written", "give yourself the right to, or set ACESPEC_CACHE")
    free = shutil.disk_usage(existing).free
    room = f"{free / 2**30:.1f} GiB free for {folder}"
    if free < NO_ROOM:
        return fault("cache", room, "make room: `acespec models ls` and `rm`, or set ACESPEC_CACHE to another disk")
    if free < LITTLE_ROOM:
        return warning("cache", room, "a draft model may not fit: make room, or set ACESPEC_CACHE to another disk")
    return ok("cache", room)


def _installed_at() -> float:
    return Path(__file__).stat().st_mtime
