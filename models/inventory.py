"""What is on this disk: models that we converted, and servable ones in the hub's cache; and how to remove them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from acespec.models.config_files import read_json
from acespec.models.info import ARCHITECTURES
from acespec.models.locks import model_lock
from acespec.models.manifest import read_manifest
from acespec.models.paths import models_root
from acespec.proto.errors import ModelError, ModelNotFound

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, HFCacheInfo


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One model on disk. `name` is what `resolve` and `remove` take; `size` is bytes."""

    name: str
    path: Path
    size: int
    model_type: str
    source: str


def list_models() -> list[StoredModel]:
    """Every usable model on this machine, by name."""
    return sorted([*_converted(), *_from_hub()], key=lambda model: model.name)


def remove(name: str) -> int:
    """Delete a model and return the bytes freed. Raises ModelNotFound, naming what there is."""
    for model in list_models():
        if name == model.name:
            return _remove_from_hub(name) if model.source == "hub" else _remove_folder(model)
    here = ", ".join(model.name for model in list_models()) or "none"
    raise ModelNotFound(f"there is no model {name!r} on this machine to remove; there are: {here}")


def _converted() -> Iterator[StoredModel]:
    root = models_root()
    for folder in root.iterdir() if root.is_dir() else ():
        manifest = None if folder.name.startswith(".") else read_manifest(folder)
        if manifest is not None:
            size = sum(file.stat().st_size for file in folder.iterdir())
            yield StoredModel(folder.name, folder, size, _model_type(folder), manifest.source)


def _from_hub() -> Iterator[StoredModel]:
    cache = _hub_cache()
    for repository in cache.repos if cache else ():
        snapshot = _newest(repository)
        if snapshot is not None and (kind := _model_type(snapshot)) in ARCHITECTURES:
            yield StoredModel(repository.repo_id, snapshot, repository.size_on_disk, kind, "hub")


def _newest(repository: CachedRepoInfo) -> Path | None:
    if repository.repo_type != "model":
        return None
    newest = max(repository.revisions, key=lambda revision: revision.last_modified, default=None)
    return newest.snapshot_path if newest else None


def _model_type(folder: Path) -> str:
    try:
        return str(read_json(folder / "config.json").get("model_type", ""))
    except ModelError:
        return ""


def _remove_folder(model: StoredModel) -> int:
    with model_lock(model.name):
        shutil.rmtree(model.path)
    return model.size


def _remove_from_hub(name: str) -> int:
    cache = _hub_cache()
    assert cache is not None
    revisions = [r.commit_hash for repo in cache.repos if repo.repo_id == name for r in repo.revisions]
    plan = cache.delete_revisions(*revisions)
    plan.execute()
    return plan.expected_freed_size


def _hub_cache() -> HFCacheInfo | None:
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        return scan_cache_dir(constants.HF_HUB_CACHE)
    except CacheNotFound:
        return None
