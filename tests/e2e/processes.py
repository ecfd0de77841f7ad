"""Our command lines as real processes, for tests: start, wait until ready, interrupt, and look at what they say."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VERIFIER = "acespec.cloud.cli"
EDGE = "acespec.edge.cli"
READY = re.compile(r"^ready on (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    code: int
    stdout: str
    stderr: str

    @property
    def error(self) -> str:
        """The one line that says what went wrong; fails the test if there is a traceback or more than one line."""
        assert "Traceback" not in self.stderr, self.stderr
        lines = [line for line in self.stderr.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.stderr
        return lines[0]


class Process:
    """A command line that runs in its own process group, its output in files."""

    def __init__(self, module: str, arguments: Sequence[str], folder: Path, **environment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._out, self._err = folder / "stdout", folder / "stderr"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                env=_environment(folder) | environment,
                start_new_session=True,
            )

    @property
    def stdout(self) -> str:
        return self._out.read_text(encoding="utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        return self._err.read_text(encoding="utf-8", errors="replace")

    def say(self, line: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()

    def end_input(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.close()

    def interrupt(self) -> None:
        self.popen.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self.popen.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = 30.0) -> Result:
        code = self.popen.wait(timeout)
        return Result(code, self.stdout, self.stderr)

    def await_output(self, length: int = 1, timeout: float = 30.0) -> str:
        """Until that many characters are on stdout."""
        deadline = time.monotonic() + timeout
        while len(self.stdout) < length:
            assert self.popen.poll() is None, f"it ended with {self.popen.returncode}: {self.stderr}"
            assert time.monotonic() < deadline, f"no output in {timeout} s: {self.stderr}"
            time.sleep(0.01)
        return self.stdout

    def resident_bytes(self) -> int:
        """RSS, from /proc."""
        pages = int(Path(f"/proc/{self.popen.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        if self.popen.stdin is not None and not self.popen.stdin.closed:
            self.popen.stdin.close()
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()


@contextmanager
def process(module: str, arguments: Sequence[str], folder: Path, **environment: str) -> Iterator[Process]:
    """A process that ends with the block."""
    started = Process(module, arguments, folder, **environment)
    try:
        yield started
    finally:
        started.end()


@contextmanager
def server(arguments: Sequence[str], folder: Path, **environment: str) -> Iterator[tuple[Process, str]]:
    """A verifier that is ready, and its address."""
    with process(VERIFIER, ["serve", "--port", "0", *arguments], folder, **environment) as started:
        deadline = time.monotonic() + 40
        while (found := READY.search(started.stderr)) is None:
            assert started.popen.poll() is None, started.stderr
            assert time.monotonic() < deadline, started.stderr
            time.sleep(0.02)
        yield started, found.group(1)


def run(module: str, arguments: Sequence[str], folder: Path, timeout: float = 40.0, **environment: str) -> Result:
    """Run to the end, without input."""
    with process(module, arguments, folder, **environment) as started:
        started.end_input()
        return started.wait(timeout)


def _environment(folder: Path) -> dict[str, str]:
    """One thread, a cache of its own, nothing of the user's settings."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("ACESPEC_")}
    return own | {"OMP_NUM_THREADS": "1", "ACESPEC_HOME": str(folder / "home"), "XDG_CONFIG_HOME": str(folder)}
