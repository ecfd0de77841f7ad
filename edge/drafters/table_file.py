"""What the n-gram drafter learned, on disk: one compressed file per target model.

A file is written beside the old one and renamed over it, so a reader sees the old or the new table and never a part.
Before writing, rows that another process stored meanwhile are joined in; of two that write in the same moment the last
one wins. A file that cannot be read is worth a warning and an empty table, never an error. The file holds pieces of the
user's texts: only the user may read it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
from numpy.typing import NDArray

from acespec.edge.drafters.calibration import Calibration
from acespec.edge.drafters.count_table import COUNT_CAP, WIDTH, CountTable, Row

FORMAT = 1
MAX_FILE_BYTES = 64 << 20

_UNREADABLE = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError)

_Number = TypeVar("_Number", bound=np.generic)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The arrays of one file.

    Attributes:
        keys: uint64[n], the context keys, least recently used first.
        widths: uint8[n], followers per context.
        tokens, counts: uint32[m], uint16[m]; m is the sum of the widths.
        rates: float32[2, cells], the dumped calibration.
    """

    keys: NDArray[np.uint64]
    widths: NDArray[np.uint8]
    tokens: NDArray[np.uint32]
    counts: NDArray[np.uint16]
    rates: NDArray[np.float32]

    def rows(self) -> Iterator[tuple[int, Row]]:
        """All (key, row) in the stored order."""
        flat = np.stack((self.tokens, self.counts), axis=1, dtype=np.int64).reshape(-1).tolist()
        at = 0
        for key, width in zip(self.keys.tolist(), self.widths.tolist(), strict=True):
            yield key, tuple(flat[at : at + 2 * width])
            at += 2 * width


class TableFile:
    """One file, read once and written when asked."""

    def __init__(self, folder: Path, model_key: str, vocab_size: int) -> None:
        self.path = folder / _file_name(model_key)
        self._vocab_size = vocab_size
        self._known: tuple[int, int] | None = None

    def load(self, table: CountTable, calibration: Calibration) -> None:
        """Fills an empty table and fresh calibration with what is stored, if anything usable is."""
        snapshot = self._read()
        if snapshot is not None:
            _join(table, snapshot)
            calibration.restore(snapshot.rates)

    def save(self, table: CountTable, calibration: Calibration) -> None:
        """Writes the table, joined with rows that others stored since; a failure is logged, never raised."""
        if self._stamp() != self._known and (theirs := self._read()) is not None:
            _join(table, theirs)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._replace(_snapshot(table, calibration))
        except OSError as error:
            log.warning("the n-gram table was not saved to %s: %s; check space and permissions", self.path, error)

    def _read(self) -> Snapshot | None:
        self._known = self._stamp()
        if self._known is None:
            return None
        try:
            if self._known[1] > MAX_FILE_BYTES:
                raise ValueError("larger than any table we write")
            with self.path.open("rb") as file:
                return self._checked(np.load(file, allow_pickle=False))
        except _UNREADABLE as error:
            log.warning("the n-gram table %s is ignored and will be rewritten: %s", self.path, error)
            return None

    def _checked(self, arrays: object) -> Snapshot:
        """The snapshot in an opened file; ValueError or KeyError if its parts do not fit together."""
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise ValueError("not an archive of arrays")
        with arrays:
            if arrays["header"].tolist() != [FORMAT, self._vocab_size]:
                raise ValueError("written for another vocabulary size or by another version")
            found = Snapshot(
                _part(arrays["keys"], np.uint64),
                _part(arrays["widths"], np.uint8),
                _part(arrays["tokens"], np.uint32),
                _part(arrays["counts"], np.uint16),
                _part(arrays["rates"], np.float32, axes=2),
            )
        if len(found.keys) != len(found.widths) or len(found.tokens) != len(found.counts):
            raise ValueError("parts of different length")
        if int(found.widths.sum(dtype=np.int64)) != len(found.tokens) or (found.widths > WIDTH).any():
            raise ValueError("follower counts do not add up")
        if (found.counts == 0).any() or (found.widths == 0).any() or (found.tokens >= self._vocab_size).any():
            raise ValueError("ids or counts out of range")
        return found

    def _replace(self, snapshot: Snapshot) -> None:
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.stem, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as out:
                self._write(out, snapshot)
                out.flush()
                os.fsync(out.fileno())
            Path(name).replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
        self._known = self._stamp()

    def _write(self, out: IO[bytes], snapshot: Snapshot) -> None:
        np.savez_compressed(
            out,
            header=np.array([FORMAT, self._vocab_size], dtype=np.int64),
            keys=snapshot.keys,
            widths=snapshot.widths,
            tokens=snapshot.tokens,
            counts=snapshot.counts,
            rates=snapshot.rates,
        )

    def _stamp(self) -> tuple[int, int] | None:
        """(modification time, size), or None without a file: tells whether another process wrote."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def _snapshot(table: CountTable, calibration: Calibration) -> Snapshot:
    keys, widths, flat = [], [], list[int]()
    for key, row in table.rows():
        keys.append(key)
        widths.append(len(row) // 2)
        flat.extend(row)
    pairs = np.array(flat, dtype=np.int64).reshape(-1, 2)
    return Snapshot(
        np.array(keys, dtype=np.uint64),
        np.array(widths, dtype=np.uint8),
        pairs[:, 0].astype(np.uint32),
        np.minimum(pairs[:, 1], COUNT_CAP).astype(np.uint16),
        calibration.dump(),
    )


def _join(table: CountTable, snapshot: Snapshot) -> None:
    for key, row in snapshot.rows():
        table.merge(key, row)
    table.fit()


def _part(array: NDArray[np.generic], dtype: type[_Number], axes: int = 1) -> NDArray[_Number]:
    if array.ndim != axes or array.dtype != dtype:
        raise ValueError("a part has another shape or type")
    return array.astype(dtype)


def _file_name(model_key: str) -> str:
    """A readable name that is unique even where two keys differ only in characters that file names lack."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", model_key).strip("-.")[:60]
    unique = hashlib.blake2b(model_key.encode(), digest_size=6).hexdigest()
    return f"{readable}-{unique}.npz"
