"""Reads a trace back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from acespec.edge.tracing.trace_json import Plain, happening_of
from acespec.edge.tracing.trace_writer import FORMAT
from acespec.edge.watch import Happening
from acespec.proto.errors import UsageError


@dataclass(frozen=True, slots=True)
class Moment:
    """What happened `t` seconds after the trace began."""

    t: float
    happening: Happening


@dataclass(frozen=True, slots=True)
class Trace:
    """One session of a file.

    Attributes:
        header: the first line.
        moments: in the order of time.
        sessions: how many sessions the file has.
    """

    header: dict[str, Plain]
    moments: tuple[Moment, ...]
    sessions: int = 1

    @property
    def tls(self) -> bool:
        """The messages were encrypted."""
        return self.header.get("tls") is True

    @property
    def start(self) -> float:
        """Time of the first record."""
        return self.moments[0].t if self.moments else 0.0

    @property
    def end(self) -> float:
        """Time of the last record."""
        return self.moments[-1].t if self.moments else 0.0

    def between(self, start: float, end: float) -> Trace:
        """What happened from `start` to `end`, both included."""
        return Trace(self.header, tuple(m for m in self.moments if start <= m.t <= end), self.sessions)


def read_trace(path: Path, session: int = 0) -> Trace:
    """A session of the trace in `path`. A last line that was cut off is left out.

    Raises:
        UsageError: the file cannot be read, is no trace or of a newer format, a line is broken, or there is no such
            session.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise UsageError(f"cannot read the trace {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no trace: it is not UTF-8 text") from error
    header = _header(path, lines[0])
    moments: dict[int, list[Moment]] = {}
    for number, line in enumerate(lines[1:-1], 2):  # What follows the last newline was cut off.
        try:
            of, moment = _moment(line)
        except UsageError as error:
            raise UsageError(f"{path}, line {number}: {error}; is the file a trace of acespec?") from error
        if moment is not None:
            moments.setdefault(of, []).append(moment)
    sessions = max(moments, default=0) + 1
    if not 0 <= session < sessions:
        raise UsageError(f"{path} has sessions 0 to {sessions - 1}, none of number {session}: choose another --session")
    return Trace(header, tuple(moments.get(session, ())), sessions)


def _header(path: Path, line: str) -> dict[str, Plain]:
    header = _object(line)
    if header is None or header.get("kind") != "trace":
        raise UsageError(f"{path} is no trace: its first line is no header; make one with acespec generate --trace")
    number = header.get("format")
    if not isinstance(number, int) or number > FORMAT:
        raise UsageError(f"{path} has format {number}, newer than the {FORMAT} that is known here: update acespec")
    return header


def _moment(line: str) -> tuple[int, Moment | None]:
    fields = _object(line)
    if fields is None:
        raise UsageError("it is no JSON object")
    t, kind, session = fields.get("t"), fields.get("kind"), fields.get("session", 0)
    if not isinstance(t, int | float) or not isinstance(kind, str) or not isinstance(session, int):
        raise UsageError("it lacks a time or a kind")
    happening = happening_of(kind, fields)
    return session, None if happening is None else Moment(float(t), happening)


def _object(line: str) -> dict[str, Plain] | None:
    try:
        value: Plain = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
