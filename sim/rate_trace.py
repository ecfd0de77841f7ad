"""Recorded rates from files: Mahimahi traces, and CSV of seconds and Kbps. Both give a `RateTrace` that repeats.

A Mahimahi trace holds one whole number a line: a millisecond at which a 1500-byte packet may leave. Stamps never
decrease; one given twice allows two packets; the last one is the length of the trace, which then starts again. Here
each stamp is a rate to integrate: 1500 bytes spread over the millisecond that ends at it. So a packet of 1500 bytes is
through no earlier than in Mahimahi, and a smaller one pays for its own bytes instead of taking a whole slot. Times are
whole nanoseconds, rounded up, so the last of three packets on one stamp misses it by two and uses the next.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path

from acespec.proto.errors import UsageError
from acespec.sim.rate import RateTrace

MAHIMAHI_PACKET_BYTES = 1500
KBPS_A_STAMP = MAHIMAHI_PACKET_BYTES * 8.0
"""One packet in one millisecond."""

Lines = list[tuple[int, str]]


def read_rate_trace(path: str | os.PathLike[str]) -> RateTrace:
    """Reads either kind, told apart by the comma. Raises UsageError naming the file and the line."""
    lines = _lines(path)
    return (_csv if "," in lines[0][1] else _mahimahi)(os.fspath(path), lines)


def read_mahimahi(path: str | os.PathLike[str]) -> RateTrace:
    """Reads a Mahimahi trace. Raises UsageError naming the file and the line."""
    return _mahimahi(os.fspath(path), _lines(path))


def read_rate_csv(path: str | os.PathLike[str]) -> RateTrace:
    """Reads lines of `t,kbps` under an optional heading. Raises UsageError naming the file and the line.

    Times are seconds and ascend; the first counts as zero. Each rate holds until the next line; the last one as long
    as the one before it, and a single one for a second.
    """
    return _csv(os.fspath(path), _lines(path))


def _mahimahi(name: str, lines: Lines) -> RateTrace:
    stamps = [_stamp(name, number, text) for number, text in lines]
    for (before, after), (number, _) in zip(pairwise(stamps), lines[1:], strict=True):
        if after < before:
            raise UsageError(f"{name} line {number}: {after} ms comes after {before} ms; stamps never decrease")
    period = stamps[-1]
    if period == 0:
        raise UsageError(f"{name} spans no time: the last stamp of a Mahimahi trace is its length in milliseconds")
    # Stamp 0 is the end of the period before, so it shares the last slot.
    counts = Counter((stamp - 1) % period for stamp in stamps)
    rates = ((ms / 1000, counts[ms] * KBPS_A_STAMP) for ms in _changes(counts, period))
    return RateTrace(tuple(_joined(rates)), period / 1000)


def _stamp(name: str, number: int, text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{name} line {number}: {text!r} is no Mahimahi stamp; write a whole number of milliseconds")
    return int(text)


def _changes(counts: Counter[int], period: int) -> list[int]:
    """The milliseconds at which the rate may change: the start of the trace, of each slot, and after each slot."""
    return sorted({0} | set(counts) | {ms + 1 for ms in counts if ms + 1 < period})


def _joined(points: Iterator[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Only the points at which the rate changes."""
    for _, same in groupby(points, key=lambda point: point[1]):
        yield next(same)


def _csv(name: str, lines: Lines) -> RateTrace:
    if not _is_number(lines[0][1].partition(",")[0]):
        lines = lines[1:]
    if not lines:
        raise UsageError(f"{name} has a heading but no lines of t,kbps")
    points = [_point(name, number, text) for number, text in lines]
    for (before, _), (after, _), (number, _) in zip(points, points[1:], lines[1:], strict=False):
        if not before < after:
            raise UsageError(f"{name} line {number}: {after} s does not come after {before} s; times must ascend")
    first = points[0][0]
    shifted = tuple((t - first, kbps) for t, kbps in points)
    last_gap = shifted[-1][0] - shifted[-2][0] if len(shifted) > 1 else 1.0
    try:
        return RateTrace(shifted, shifted[-1][0] + last_gap)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error


def _point(name: str, number: int, text: str) -> tuple[float, float]:
    t, _, kbps = text.partition(",")
    if not (_is_number(t) and _is_number(kbps)):
        raise UsageError(f"{name} line {number}: cannot read {text!r}; write t,kbps, such as 0.5,48.2")
    return float(t), float(kbps)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _lines(path: str | os.PathLike[str]) -> Lines:
    """Numbered lines that are not blank."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read rate trace {os.fspath(path)}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{os.fspath(path)} is no rate trace: it is not text") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise UsageError(f"{os.fspath(path)} is empty: a rate trace needs at least one line")
    return lines
