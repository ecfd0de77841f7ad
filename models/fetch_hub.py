"""Fetch a repository from a Hugging Face hub into the hub's own cache, and check what arrived.

Only what a served model needs is fetched, and config.json first: gigabytes of a model that we do not run are never
downloaded. Files that are complete are not fetched again, so an interrupted pull goes on with the file it was at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from acespec.models.config_files import read_json
from acespec.models.hub_progress import forwarding_bar
from acespec.models.progress import Report
from acespec.models.staging import disk_errors
from acespec.proto.errors import DownloadError, IntegrityError, ModelNotFound

TEXTS = ("*.json", "*.jinja", "merges.txt")
WEIGHTS = ("*.safetensors",)
UNWANTED = ("*/*",)
"""Subfolders hold other formats of the same weights."""
CHUNK = 1 << 20


def cached_repository(repository: str, weights: bool = True) -> Path | None:
    """The newest snapshot in the cache if nothing needed is missing from it, or None. Needs no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        snapshot = Path(snapshot_download(repository, local_files_only=True, allow_patterns=["config.json"]))
    except LocalEntryNotFoundError:
        return None
    return snapshot if not missing_files(snapshot, weights) else None


def fetch_repository(
    repository: str,
    report: Report,
    accept: Callable[[Path], object],
    *,
    weights: bool = True,
    endpoint: str | None = None,
) -> Path:
    """Download the newest revision and return its folder.

    `accept` gets the folder when only config.json is there, and raises to stop before the weights. Without `weights`
    the rest is fetched only: what an edge needs of a target that it does not run. Raises
    ModelNotFound for a repository that does not exist or is closed to us, DownloadError for a failed transfer or a
    full disk, IntegrityError for bytes that differ from the hub's own hashes.
    """
    from huggingface_hub import snapshot_download

    with _hub_errors(repository):
        bars = forwarding_bar(report)
        snapshot = Path(
            snapshot_download(repository, allow_patterns=["config.json"], tqdm_class=bars, endpoint=endpoint)
        )
        _require(snapshot, "config.json", repository)
        accept(snapshot)
        snapshot_download(
            repository,
            revision=snapshot.name,
            allow_patterns=[*TEXTS, *(WEIGHTS if weights else ())],
            ignore_patterns=list(UNWANTED),
            tqdm_class=bars,
            endpoint=endpoint,
        )
    verify_snapshot(snapshot)
    for name in missing_files(snapshot, weights):
        _require(snapshot, name, repository)
    return snapshot


def fetch_file(
    repository: str, name: str, report: Report, *, offline: bool = False, endpoint: str | None = None
) -> Path:
    """One file of a repository, in the hub's own cache; errors as for `fetch_repository`.

    `offline` takes it only if it is there already, else ModelNotFound.
    """
    from huggingface_hub import errors, hf_hub_download

    with _hub_errors(repository):
        bars = forwarding_bar(report)
        try:
            file = hf_hub_download(repository, name, local_files_only=offline, tqdm_class=bars, endpoint=endpoint)
        except errors.RemoteEntryNotFoundError as fault:
            raise ModelNotFound(f"{repository} on the hub has no file {name}: check the spelling") from fault
        except errors.LocalEntryNotFoundError as fault:
            if not offline:
                raise
            raise ModelNotFound(
                f"{repository}/{name} is not on this machine and may not be fetched now (offline)"
            ) from fault
    return Path(file)


def missing_files(folder: Path, weights: bool = True) -> list[str]:
    """Names of the files that a model folder must have and this one lacks; without `weights`, to tokenize only."""
    needed = ["config.json", "tokenizer.json", *(_weight_files(folder) if weights else ())]
    return [name for name in needed if not (folder / name).exists()]


def verify_snapshot(snapshot: Path) -> None:
    """Compare each file with its hash; the cache names its blobs by them. A broken one is removed.

    Large files are named by their SHA-256, small ones as Git names a blob: SHA-1 over a header and the content.
    Raises IntegrityError.
    """
    for file in sorted(snapshot.iterdir()):
        blob = file.resolve()
        if blob.parent.name != "blobs":
            continue  # this cache holds copies instead of links, and no hashes
        if _hash_like(blob) != blob.name:
            blob.unlink()
            file.unlink()
            raise IntegrityError(f"{file.name} arrived broken (its hash is not {blob.name}): pull it again")


def _require(snapshot: Path, name: str, repository: str) -> None:
    if not (snapshot / name).exists():
        raise ModelNotFound(f"{repository} has no {name}: only safetensors repositories with tokenizer.json are served")


def _weight_files(folder: Path) -> list[str]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return ["model.safetensors"]
    places = read_json(index).get("weight_map")
    if not isinstance(places, Mapping):
        raise IntegrityError(f"{index} lists no weights: fetch the model again")
    return sorted({str(name) for name in places.values()})


def _hash_like(blob: Path) -> str:
    """The digest of `blob` by the scheme that its name has the length of; the name itself if by none."""
    if len(blob.name) == 64:
        digest = hashlib.sha256()
    elif len(blob.name) == 40:
        digest = hashlib.sha1(b"blob %d\0" % blob.stat().st_size, usedforsecurity=False)
    else:
        return blob.name
    with blob.open("rb") as content:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _hub_errors(repository: str) -> Iterator[None]:
    from huggingface_hub import constants, errors

    try:
        with disk_errors(Path(constants.HF_HUB_CACHE)):
            yield
    except errors.GatedRepoError as fault:
        raise ModelNotFound(
            f"{repository} is gated: accept its terms on the hub, then set HF_TOKEN or run `hf auth login`"
        ) from fault
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as fault:
        raise ModelNotFound(
            f"the hub has no model {repository}: check the spelling (a private one needs HF_TOKEN)"
        ) from fault
    except (_transport_error(), OSError) as fault:
        raise DownloadError(
            f"{repository} could not be fetched ({_first_line(fault)}): check the network and pull again; files that "
            "are complete are kept"
        ) from fault


def _transport_error() -> type[Exception]:
    """The base of all faults of the HTTP library that the hub library uses; which one that is differs by version."""
    from huggingface_hub.errors import HfHubHTTPError

    return cast(type[Exception], HfHubHTTPError.__bases__[0])


def _first_line(fault: BaseException) -> str:
    """What went wrong below the hub library's advice, in one line."""
    cause = fault.__cause__ or fault
    return (
        f"{type(cause).__name__}: {str(cause).strip().splitlines()[0]}" if str(cause).strip() else type(cause).__name__
    )
