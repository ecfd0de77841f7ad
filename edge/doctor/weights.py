"""Whether the files of weights are whole, by their own tables of contents; nothing is loaded.

A safetensors file says in its header which bytes each tensor has, so the file's length is known from it.
"""

from __future__ import annotations

import json
from pathlib import Path

from acespec.models.fetch_hub import missing_files
from acespec.proto.errors import IntegrityError

LENGTH_BYTES = 8
LONGEST_HEADER = 100_000_000
"""The limit of the format itself."""


def require_whole(folder: Path) -> int:
    """Check the weights of a model folder, and return their size in bytes.

    Raises:
        IntegrityError: a file is absent, cut off, or no safetensors file.
    """
    if missing := missing_files(folder):
        raise IntegrityError(f"{folder} has no {missing[0]}")
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        require_whole_file(file)
    return sum(file.stat().st_size for file in files)


def require_whole_file(file: Path) -> None:
    """Raise IntegrityError unless the file is as long as its header says."""
    size = file.stat().st_size
    expected = _stated_size(file)
    if size < expected:
        raise IntegrityError(f"{file} is cut off: {size} bytes of {expected}")
    if size > expected:
        raise IntegrityError(f"{file} has {size - expected} bytes too many")


def _stated_size(file: Path) -> int:
    with file.open("rb") as content:
        length = int.from_bytes(content.read(LENGTH_BYTES), "little")
        if not 2 <= length <= LONGEST_HEADER:
            raise IntegrityError(f"{file} is no safetensors file")
        header = content.read(length)
    try:
        entries = json.loads(header)
        ends = [int(entry["data_offsets"][1]) for name, entry in entries.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        cut = " (it is cut off)" if len(header) < length else ""
        raise IntegrityError(f"{file} has a broken header{cut}") from error
    return LENGTH_BYTES + length + max(ends, default=0)
