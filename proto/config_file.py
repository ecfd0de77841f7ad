"""The TOML file of settings: read, checked against the options that there are, and made click's defaults.

A table is named for a command (`[chat]`, `[models.pull]`) and its keys for options. The three programs read the same
file, so a table that names no command of this one is somebody else's. Where a program says so, keys in front of all
tables hold for each of its commands that has the option.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
from typer.core import TyperGroup

from acespec.proto import option_names
from acespec.proto.errors import UsageError
from acespec.proto.option_names import Setting

if TYPE_CHECKING:
    from typer._click import Command
else:
    Command = object

Table = Mapping[str, object]
NO_RELATIVES: Mapping[str, tuple[str, ...]] = {}


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """What is wrong in or with the file, and what to do about it."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Config:
    """A settled file.

    Attributes:
        path: the file, whether it is there or not.
        tables: what is in it; empty without one.
        defaults: click's default map: by command, by parameter.
        origins: command path and parameter -> where in the file its value stands.
        faults: in the order of the file.
        strange: names of tables that are of no command of this program.
    """

    path: Path
    tables: Table
    defaults: dict[str, object]
    origins: Mapping[tuple[option_names.Path, str], str]
    faults: tuple[ConfigFault, ...] = ()
    strange: tuple[str, ...] = ()


def config_path() -> Path:
    """Where the file is looked for if none is named."""
    return Path(platformdirs.user_config_dir("acespec")) / "acespec.toml"


def read_config(path: Path | None) -> dict[str, object]:
    """Tables of the file; empty if none was named and none is in the usual place.

    Raises:
        UsageError: the file cannot be read or is not TOML.
    """
    chosen = path or config_path()
    if path is None and not chosen.exists():
        return {}
    try:
        return tomllib.loads(chosen.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the config file {chosen}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the config file {chosen} is not TOML: {error}") from error


def load(
    path: Path | None,
    program: Command,
    *,
    shared: bool = False,
    relatives: Mapping[str, tuple[str, ...]] = NO_RELATIVES,
) -> Config:
    """Read and settle the file. Faults are collected, not raised.

    Args:
        shared: keys in front of all tables hold for every command that has the option.
        relatives: command -> others whose tables it reads too, its own first.
    """
    chosen = path or config_path()
    try:
        tables = read_config(path)
    except UsageError as error:
        fault = ConfigFault(str(error), f"correct that place of {chosen}, or begin anew: `acespec init --force`")
        if not chosen.exists():
            fault = ConfigFault(str(error), "check --config and ACESPEC_CONFIG, or write one: `acespec init`")
        return Config(chosen, {}, {}, {}, (fault,))
    return _Settling(chosen, tables, program, shared, relatives).result()


class _Settling:
    """Turns tables into defaults, one command after another."""

    def __init__(
        self, path: Path, tables: Table, program: Command, shared: bool, relatives: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._path = path
        self._tables = tables
        self._program = program
        self._relatives = relatives
        self._common = {key: value for key, value in tables.items() if not isinstance(value, dict)} if shared else {}
        self._faults: list[ConfigFault] = []
        self._origins: dict[tuple[option_names.Path, str], str] = {}

    def result(self) -> Config:
        defaults = self._command((), self._program)
        known = self._program.commands if isinstance(self._program, TyperGroup) else {}
        strange = [name for name, value in self._tables.items() if isinstance(value, dict) and name not in known]
        self._check_common()
        return Config(
            self._path, self._tables, defaults, self._origins, tuple(dict.fromkeys(self._faults)), tuple(strange)
        )

    def _command(self, path: option_names.Path, command: Command) -> dict[str, object]:
        settings = option_names.settings_at(path, command)
        found: dict[str, object] = {}
        own = {key: value for key, value in self._tables.items() if not isinstance(value, dict)}
        self._take(found, settings, own if not path else self._common, "the top", strict=False)
        if path:
            for place in self._places(path):
                self._take(found, settings, self._table(place), f"[{'.'.join(place)}]", strict=place == path)
        if isinstance(command, TyperGroup):
            for name, child in command.commands.items():
                found[name] = self._command((*path, name), child)
        return found

    def _places(self, path: option_names.Path) -> list[option_names.Path]:
        """The tables that a command reads, the last word last."""
        name, rest = path[0], path[1:]
        if isinstance(self._program, TyperGroup):
            name = option_names.aliased(self._program, name)
        relatives = () if rest else self._relatives.get(name, ())
        return [*((relative,) for relative in reversed(relatives)), (name, *rest)]

    def _table(self, path: option_names.Path) -> Table:
        table: object = self._tables
        for name in path:
            table = table.get(name, {}) if isinstance(table, dict) else {}
        return table if isinstance(table, dict) else {}

    def _take(
        self, found: dict[str, object], settings: list[Setting], table: Table, place: str, *, strict: bool
    ) -> None:
        """Note the values of `table` in `found`; `strict`: what is no option of this command is a fault."""
        by_key = {key: setting for setting in settings for key in setting.keys}
        for key, value in table.items():
            if (setting := by_key.get(key)) is not None:
                found[setting.name] = value
                self._origins[setting.path, setting.name] = place
            elif strict and not isinstance(value, dict):
                self._faults.append(self._unknown(key, place, by_key))

    def _check_common(self) -> None:
        if not self._common:
            return
        known = {key for setting in option_names.all_settings(self._program) for key in setting.keys}
        self._faults += [self._unknown(key, "the top", known) for key in self._common if key not in known]

    def _unknown(self, key: str, place: str, known: Iterable[str]) -> ConfigFault:
        near = difflib.get_close_matches(key, known, n=1)
        fix = f"write `{near[0]}`" if near else "remove it, or see what there is with `acespec init --print`"
        return ConfigFault(f"the config file {self._path} sets {key!r} in {place}, which is no option there", fix)
