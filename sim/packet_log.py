"""The per-packet log: what proves the limit and feeds the tests.

JSON lines. The first describes the rest: spec, command, wall-clock start, units. Then one object a packet, in booking
order, with times in nanoseconds from the start of the link. A refused packet has its time of arrival for start and
finish and no release; a lost one has no release.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TextIO

from acespec.proto.errors import UsageError
from acespec.sim.link import Direction, Drop, DropReason, Passage
from acespec.sim.spec import LinkSpec
from acespec.sim.spec_reader import spec_from_table

FORMAT = "acespec-link-log"
VERSION = 2
READABLE = (1, 2)
"""Version 1 knew neither varying rates nor policers; what it says means the same."""

PacketKind = Literal["data", "retransmission", "ack", "syn", "syn-ack", "fin", "rst", "packet"]
"""What a proxy models of TCP. A `retransmission` crosses the link once more. A `packet` is a real one, seen whole."""


@dataclass(frozen=True, slots=True)
class PacketRecord:
    """One booked packet. `bytes` is stream payload, `wire` adds the headers; `drop` is the reason or None."""

    t_in: int
    dir: Direction
    conn: int
    kind: PacketKind
    bytes: int
    wire: int
    start: int
    finish: int
    release: int | None
    drop: DropReason | None

    def as_line(self) -> str:
        """Compact JSON with a fixed key order."""
        return json.dumps(asdict(self), separators=(",", ":"))


def record_of(
    t: int, direction: Direction, conn: int, kind: PacketKind, nbytes: int, outcome: Passage | Drop
) -> PacketRecord:
    """The log's view of one `offer`."""
    release, drop = (outcome.release, None) if isinstance(outcome, Passage) else (None, outcome.reason)
    return PacketRecord(t, direction, conn, kind, nbytes, outcome.wire, outcome.start, outcome.finish, release, drop)


def digest(records: Iterable[PacketRecord]) -> str:
    """BLAKE2b over the ordered records: equal digests mean equal logs."""
    state = hashlib.blake2b(digest_size=16)
    for record in records:
        state.update(record.as_line().encode() + b"\n")
    return state.hexdigest()


class PacketLog:
    """Writes the log line by line, so that a reader may follow it. Raises UsageError if the file cannot be made."""

    def __init__(self, path: str | os.PathLike[str], spec: LinkSpec, command: Sequence[str] = ()) -> None:
        try:
            self._file: TextIO = Path(path).open("w", buffering=1, encoding="utf-8")  # noqa: SIM115 - kept open
        except OSError as error:
            raise UsageError(
                f"cannot write link log {os.fspath(path)}: {error.strerror}; choose another --log"
            ) from error
        header = {
            "format": FORMAT,
            "version": VERSION,
            "spec": spec.as_json(),
            "command": list(command),
            "started_unix_s": time.time(),
            "time_unit": "ns since start",
            "bytes": "payload; wire = payload + modelled IPv4 and TCP headers; of a real packet both are its length",
        }
        self._file.write(json.dumps(header, separators=(",", ":")) + "\n")

    def write(self, record: PacketRecord) -> None:
        """Appends one packet."""
        self._file.write(record.as_line() + "\n")

    def close(self) -> None:
        """Flushes and closes; may be called twice."""
        self._file.close()


def read_spec(path: str | os.PathLike[str]) -> LinkSpec:
    """The spec in a log's header. Raises UsageError if the file is no link log."""
    with _open(path) as lines:
        return _spec_from_header(lines.readline(), path)


def read_records(path: str | os.PathLike[str]) -> Iterator[PacketRecord]:
    """The packets of a log. Raises UsageError naming the first line that is none."""
    with _open(path) as lines:
        _spec_from_header(lines.readline(), path)
        for number, line in enumerate(lines, start=2):
            try:
                yield PacketRecord(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise UsageError(
                    f"{os.fspath(path)} line {number} is no packet record: is the log complete?"
                ) from error


def _open(path: str | os.PathLike[str]) -> TextIO:
    try:
        return Path(path).open(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read link log {os.fspath(path)}: {error.strerror}") from error


def _spec_from_header(line: str, path: str | os.PathLike[str]) -> LinkSpec:
    try:
        header = json.loads(line)
        if header["format"] != FORMAT or header["version"] not in READABLE:
            raise ValueError
        return spec_from_table(header["spec"])
    except (ValueError, TypeError, KeyError, UsageError) as error:
        raise UsageError(
            f"{os.fspath(path)} does not start with the header of a link log of version {VERSION} or before"
        ) from error
