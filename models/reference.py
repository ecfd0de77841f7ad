"""What a person means by a model name: a row of our table, a path, a hub repository, or a converted model.

The table comes first, so that a stray folder cannot take the place of a name that promises certain bytes; a path
that must not be mistaken for a name is written with a slash (`./smollm2-135m`).
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from acespec.models.paths import models_root
from acespec.models.sources import SOURCES, WheelSource
from acespec.proto.errors import ModelNotFound

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_STORED = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_PATH_STARTS = ("/", "./", "../", "~", ".\\", "..\\")


@dataclass(frozen=True, slots=True)
class Named:
    """A row of the source table."""

    name: str
    source: WheelSource


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A Hugging Face style folder, used where it is."""

    path: Path


@dataclass(frozen=True, slots=True)
class LocalGguf:
    """A GGUF file, converted into the cache."""

    path: Path


@dataclass(frozen=True, slots=True)
class HubRepository:
    """`owner/name` on a Hugging Face hub."""

    name: str


Reference = Named | LocalFolder | LocalGguf | HubRepository


def parse_reference(text: str) -> Reference:
    """Decide what `text` names. Raises ModelNotFound, with near names, if it is nothing that could be had."""
    if text in SOURCES:
        return Named(text, SOURCES[text])
    path = Path(text).expanduser()
    if path.is_dir():
        return LocalFolder(path)
    if path.is_file():
        return _local_file(path)
    if _STORED.fullmatch(text) and (models_root() / text).is_dir():
        return LocalFolder(models_root() / text)
    if text.startswith(_PATH_STARTS) or path.suffix == ".gguf":
        raise ModelNotFound(f"there is no file or folder {text}: check the path")
    if _REPOSITORY.fullmatch(text):
        return HubRepository(text)
    raise ModelNotFound(_unknown(text))


def _local_file(path: Path) -> Reference:
    if path.suffix.lower() == ".gguf":
        return LocalGguf(path)
    if (path.parent / "config.json").exists():
        raise ModelNotFound(f"{path} is one file of a model: give its folder, {path.parent}")
    raise ModelNotFound(f"{path} is neither a .gguf file nor a model folder")


def _unknown(text: str) -> str:
    near = difflib.get_close_matches(text, SOURCES, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return (
        f"there is no model {text!r}: {hint}Known names are {', '.join(SOURCES)}; a path to a folder or .gguf file, or "
        "owner/name on the hub, will do as well"
    )
