"""The small file by which a converted folder says what it was made from, and by which version of the conversion."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from acespec.models.config_files import read_json_if_any
from acespec.models.info import MANIFEST

FORMAT = 1
"""Raised whenever the conversion changes its output: older folders are then made again."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """`name` is for people; `source` says where the bytes came from; `key` identifies them."""

    name: str
    source: str
    key: str
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Put it into `folder`."""
        (folder / MANIFEST).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, or None if it has none of this version."""
    stated = read_json_if_any(folder / MANIFEST)
    name, source, key = stated.get("name"), stated.get("source"), stated.get("key")
    if stated.get("format") != FORMAT:
        return None
    if not (isinstance(name, str) and isinstance(source, str) and isinstance(key, str)):
        return None
    return Manifest(name, source, key)
