"""Writes what sessions do into a file, one JSON object a line: `--trace`.

The first line is a header. A line is written at once, so that a run that is killed leaves all but its last moment. A
disk that fills up costs the trace, never the session.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from acespec.edge.tracing.trace_json import Plain, line_of
from acespec.edge.watch import Happening
from acespec.proto.errors import UsageError

log = logging.getLogger(__name__)

FORMAT = 1
"""Raised with every change that an older reader would misread."""


class TraceWriter:
    """One file for all sessions of a run; a context manager.

    Args:
        header: what a reader should know of the run besides: model, options.
        tls: the messages are encrypted, which their sizes on the wire depend on.
        clock: seconds; the file's times count from now on it.

    Raises:
        UsageError: the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        header: Mapping[str, Plain] | None = None,
        *,
        tls: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._clock = clock
        self._sessions = 0
        try:
            self._file: TextIO | None = path.open("w", encoding="utf-8", errors="backslashreplace", buffering=1)
        except OSError as error:
            raise UsageError(f"--trace {path}: {error.strerror or error}") from error
        self._began = clock()
        first: dict[str, Plain] = {
            "kind": "trace",
            "format": FORMAT,
            "version": version("acespec"),
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "tls": tls,
        }
        self._write(json.dumps(first | dict(header or {}), ensure_ascii=False) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def session(self) -> SessionTrace:
        """The watcher of the next session; sessions count from 0."""
        self._sessions += 1
        return SessionTrace(self, self._sessions - 1)

    def write(self, session: int, happening: Happening) -> None:
        """`happening` is now."""
        if self._file is not None:
            self._write(line_of(self._clock() - self._began, session, happening))

    def close(self) -> None:
        """No more is written."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self._give_up(error)

    def _write(self, line: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(line)
        except OSError as error:
            file, self._file = self._file, None
            with suppress(OSError):  # It still holds what could not be written.
                file.close()
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        log.warning("the trace %s ends here: %s", self._path, error.strerror or error)


@dataclass(frozen=True, slots=True)
class SessionTrace:
    """A `SessionWatcher` that writes into a trace."""

    trace: TraceWriter
    number: int

    def saw(self, happening: Happening) -> None:
        """See `SessionWatcher.saw`."""
        self.trace.write(self.number, happening)
