"""Starts our own command lines as processes, waits until they serve, and ends them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from acespec.proto.errors import AcespecError

STOP_S = 10.0


class ProcessFailed(AcespecError):
    """A process that is needed did not start."""


def free_port() -> int:
    """A TCP port on loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(
    module: str, arguments: Sequence[str], log: Path, *, timeout_s: float = 300.0
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `python -m module arguments` until the context ends; enters once it has printed `ready` on stderr.

    Raises:
        ProcessFailed: it ended, or was not ready in time; the end of its log is in the message.
    """
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C goes to us; we end it in order.
        )
    try:
        _await_ready(module, process, log, timeout_s)
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(module: str, process: subprocess.Popen[bytes], log: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while b"ready" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace").strip().splitlines()[-3:]
            raise ProcessFailed(f"{module} did not start: {' / '.join(tail) or 'no output'}")
        time.sleep(0.05)
