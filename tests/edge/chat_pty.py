"""`acespec chat` on a pseudo-terminal, as a person has it: keys in, bytes out, a window that changes its size."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.edge.chat_terminal import Terminal

ANSWER = re.compile(r"\x1b\[\?25l(\x1b\[\?2026h.*?)\x1b\[\?25h", re.DOTALL)
"""All frames of one answer."""
CURSOR_ASKED = "\x1b[6n"


class ChatOnPty:
    """The running program and what it has written."""

    def __init__(self, arguments: Sequence[str], home: Path, width: int, height: int, **environment: str) -> None:
        self.output = ""
        self.sizes = [(0, (width, height))]
        self._keys, terminal = pty.openpty()
        _set_size(self._keys, width, height)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ACESPEC_") and k != "NO_COLOR"}
        settings = {"ACESPEC_HOME": str(home), "XDG_CONFIG_HOME": str(home), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "acespec.edge.cli", "chat", *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=clean | settings | {"TERM": "xterm-256color"} | environment,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(terminal)

    def press(self, keys: str) -> None:
        os.write(self._keys, keys.encode())

    def say(self, line: str) -> None:
        self.press(line + "\r")

    def resize(self, width: int, height: int) -> None:
        self.read(0.0)
        self.sizes.append((len(self.output), (width, height)))
        _set_size(self._keys, width, height)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def read(self, seconds: float) -> None:
        """Take in what comes within that time."""
        end = time.monotonic() + seconds
        while select.select([self._keys], [], [], max(0.0, end - time.monotonic()))[0]:
            try:
                data = os.read(self._keys, 65536)
            except OSError:  # Linux's end of file: the program has ended.
                return
            text = data.decode(errors="replace")
            if CURSOR_ASKED in text:
                self.press("\x1b[1;1R")
            self.output += text
            if time.monotonic() >= end:
                return

    def until(self, condition: Callable[[str], object], timeout: float = 20.0) -> None:
        """Read until the output fulfils a condition."""
        deadline = time.monotonic() + timeout
        while not condition(self.output):
            assert time.monotonic() < deadline, self.output[-2000:]
            assert self._process.poll() is None or condition(self.output), self.output[-2000:]
            self.read(0.02)

    def prompted(self, times: int) -> None:
        """Until it waits for that many questions in all (each prompt turns on bracketed paste)."""
        self.until(lambda output: output.count("\x1b[?2004h") >= times)

    def answers(self) -> list[str]:
        return ANSWER.findall(self.output)

    def ended(self) -> int:
        deadline = time.monotonic() + 15
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self.output[-2000:]
            self.read(0.02)
        self.read(0.05)
        return self._process.returncode

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._keys)


@contextmanager
def chat_on_pty(
    arguments: Sequence[str], home: Path, *, width: int = 60, height: int = 12, **environment: str
) -> Iterator[ChatOnPty]:
    chat = ChatOnPty(arguments, home, width, height, **environment)
    try:
        yield chat
    finally:
        chat.close()


def replayed(frames: str, width: int = 60, height: int = 12) -> Terminal:
    """A terminal on which the frames of an answer were drawn."""
    terminal = Terminal(width, height)
    terminal.write(frames)
    return terminal


def _take_terminal() -> None:
    """Stdin is the program's controlling terminal, so that Ctrl-C is its signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _set_size(terminal: int, width: int, height: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
