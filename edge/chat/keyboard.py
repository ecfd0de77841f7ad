"""Keys that are pressed while an answer is written: not echoed into it, but kept for the next question."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silent_keys() -> Iterator[None]:
    """No echo on the terminal of stdin; Ctrl-C works. Without such a terminal, or on Windows, nothing changes."""
    try:
        import termios
    except ImportError:
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    silent = list(before)
    silent[3] = before[3] & ~termios.ECHO
    termios.tcsetattr(keyboard, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSANOW, before)
