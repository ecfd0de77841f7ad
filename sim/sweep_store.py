"""The folder of a sweep: what it is (`sweep.json`), and a file for each cell that is done (`cells/KEY.json`).

A key is a hash of the scenario, of the files that it names and of the version: whatever would change the result
changes the key, so what is there need not be run again. A cell that failed leaves `cells/KEY.error`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict, cast

from acespec.proto.errors import UsageError
from acespec.sim.sweep_file import Axis, Cell, Sweep
from acespec.sim.world.result import Result, load_result
from acespec.sim.world.scenario import Scenario

MANIFEST = "sweep.json"
CELLS = "cells"
KEY_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Done:
    """A cell and its result; `point` and `labels` as in `Cell`."""

    point: tuple[int, ...]
    labels: tuple[str, ...]
    result: Result


@dataclass(frozen=True, slots=True)
class SweepData:
    """What a sweep's folder holds.

    Attributes:
        command: that made it.
        text: of the sweep's file.
        cells: those that are done, in the order of the sweep.
        missing: names of the others; `failed` of them with the last line of the error.
    """

    name: str
    command: str
    version: str
    text: str
    axes: tuple[Axis, ...]
    cells: tuple[Done, ...]
    missing: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]


class _CellEntry(TypedDict):
    point: list[int]
    labels: list[str]
    key: str


class _AxisEntry(TypedDict):
    keys: list[str]
    points: list[list[object]]


class _Manifest(TypedDict):
    sweep: str
    command: str
    version: str
    text: str
    axes: list[_AxisEntry]
    cells: list[_CellEntry]


class SweepStore:
    """Writes and reads the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self, sweep: Sweep, command: Sequence[str]) -> None:
        """Make the folder and say what it is. Raises UsageError if it cannot be written, or holds something else."""
        if self.folder.is_dir() and not (self.folder / MANIFEST).is_file() and any(self.folder.iterdir()):
            raise UsageError(f"{self.folder} holds something else than a sweep: name another folder with --out")
        manifest: _Manifest = {
            "sweep": sweep.name,
            "command": " ".join(command),
            "version": version("acespec"),
            "text": sweep.text,
            "axes": [{"keys": [*axis.keys], "points": [[*point] for point in axis.points]} for axis in sweep.axes],
            "cells": [
                {"point": [*cell.point], "labels": [*cell.labels], "key": cell_key(cell.scenario)}
                for cell in sweep.cells
            ],
        }
        try:
            (self.folder / CELLS).mkdir(parents=True, exist_ok=True)
            _replace(self.folder / MANIFEST, json.dumps(manifest, indent=1, default=str) + "\n")
        except OSError as error:
            raise UsageError(f"cannot write {self.folder}: {error.strerror}") from error

    def holds(self, cell: Cell) -> bool:
        """Whether that cell is done."""
        return self._path(cell_key(cell.scenario), "json").is_file()

    def keep(self, scenario: Scenario, result: Result) -> None:
        """A cell is done. Half a file is never seen. Raises OSError."""
        key = cell_key(scenario)
        _replace(self._path(key, "json"), json.dumps(result.as_json()) + "\n")
        self._path(key, "error").unlink(missing_ok=True)

    def keep_failure(self, scenario: Scenario, text: str) -> None:
        """A cell has failed. Raises OSError."""
        _replace(self._path(cell_key(scenario), "error"), text)

    def load(self) -> SweepData:
        """What is there. Raises UsageError if this is no sweep's folder."""
        manifest = self._manifest()
        done: list[Done] = []
        missing: list[str] = []
        failed: list[tuple[str, str]] = []
        for cell in manifest["cells"]:
            point, labels, key = tuple(cell["point"]), tuple(cell["labels"]), cell["key"]
            if (path := self._path(key, "json")).is_file():
                done.append(Done(point, labels, load_result(path)))
                continue
            name = " / ".join(labels)
            missing.append(name)
            failed += [(name, line) for line in self._failure(key)]
        return SweepData(
            name=manifest["sweep"],
            command=manifest["command"],
            version=manifest["version"],
            text=manifest["text"],
            axes=tuple(
                Axis(tuple(axis["keys"]), tuple(tuple(point) for point in axis["points"])) for axis in manifest["axes"]
            ),
            cells=tuple(done),
            missing=tuple(missing),
            failed=tuple(failed),
        )

    def _manifest(self) -> _Manifest:
        path = self.folder / MANIFEST
        try:
            manifest: object = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.folder} is no sweep's folder ({path.name}: {error})") from error
        if not isinstance(manifest, dict) or not _Manifest.__annotations__.keys() <= manifest.keys():
            raise UsageError(f"{path} was not written by acespec-sim sweep")
        return cast(_Manifest, manifest)

    def _failure(self, key: str) -> Iterator[str]:
        path = self._path(key, "error")
        if path.is_file():
            yield path.read_text(encoding="utf-8").strip().rpartition("\n")[2]

    def _path(self, key: str, kind: str) -> Path:
        return self.folder / CELLS / f"{key}.{kind}"


def cell_key(scenario: Scenario) -> str:
    """Names a cell's file: equal for runs that must give the same result."""
    parts = [scenario.config_hash(), version("acespec")]
    names = (scenario.link.file, scenario.target.ids, scenario.target.profile, scenario.drafter.acceptance)
    parts += [hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in names if name and _is_file(name)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:KEY_DIGITS]


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # A text too long to be the name of one.
        return False


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
