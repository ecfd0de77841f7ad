"""All or nothing on disk: work in a hidden sibling, then take its final name in one rename.

Whoever looks at the final name sees a whole model or none. A failure or an interrupt removes the sibling; what a
killed process left is removed by the next one that holds the lock.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from acespec.models.progress import megabytes
from acespec.proto.errors import DownloadError

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """Yield an empty sibling of `target`; on success make it durable and rename it to `target`.

    The caller holds the lock of `target`. An older `target` is replaced. Raises DownloadError when the disk is full
    or not writable; every other exception passes through. In all failures nothing is left behind.
    """
    with disk_errors(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        stage = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
        stage.chmod(0o755)
        try:
            yield stage
            _make_durable(stage)
            _replace(stage, target)
        finally:
            shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn the operating system's complaints about `folder` into one clear line."""
    try:
        yield
    except OSError as fault:
        if fault.errno in NO_ROOM:
            raise DownloadError(
                f"no room on the disk that holds {folder} ({_strerror(fault)}): free some space, or set "
                "ACESPEC_CACHE to a folder on a larger disk; nothing was kept"
            ) from fault
        if fault.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise DownloadError(
                f"cannot write below {folder} ({_strerror(fault)}): fix its permissions, or set ACESPEC_CACHE"
            ) from fault
        raise


def require_room(folder: Path, needed: int) -> None:
    """Raise DownloadError unless the disk of `folder` has `needed` bytes free; better now than after the download."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise DownloadError(
            f"{megabytes(needed)} are needed on the disk that holds {folder}, but only {megabytes(free)} are free: "
            "free some space, or set ACESPEC_CACHE to a folder on a larger disk"
        )


def _prefix(target: Path) -> str:
    return f".partial-{target.name}-"


def _remove_leftovers(target: Path) -> None:
    for leftover in target.parent.glob(_prefix(target) + "*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _make_durable(folder: Path) -> None:
    for file in folder.iterdir():
        _fsync(file)
    _fsync(folder)


def _replace(stage: Path, target: Path) -> None:
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
        target.rename(old / target.name)
        stage.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        stage.rename(target)
    _fsync(target.parent)


def _fsync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _strerror(fault: OSError) -> str:
    return fault.strerror or str(fault)
