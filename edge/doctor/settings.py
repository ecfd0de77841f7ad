"""The settings file and the environment: what cannot be read, what names no option, what is of a wrong type."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup

from acespec.edge.doctor.finding import Finding, fault, ok, warning
from acespec.proto import option_names
from acespec.proto.config_file import Config
from acespec.proto.option_names import Setting

if TYPE_CHECKING:
    from typer._click import Command
else:
    Command = object

CHECK = "settings"
NOT_OPTIONS = frozenset({"ACESPEC_HOME", "ACESPEC_CACHE"})
NEAR = 0.85
"""How alike a variable has to be to one of ours to be taken for a slip of the pen."""


def settings_findings(config: Config, program: Command) -> Iterator[Finding]:
    """The file first, then the environment."""
    faults = [fault(CHECK, f.what, f.fix) for f in config.faults] + list(_type_faults(config, program))
    yield from faults
    yield from (_strange_table(name, config, program) for name in config.strange)
    if (exposed := _exposed_secret(config, program)) is not None:
        yield exposed
    yield from _misspelt(program)
    if not faults:
        yield ok(CHECK, _summary(config))


def _summary(config: Config) -> str:
    names = sorted(name for name in os.environ if name.startswith(option_names.PREFIX))
    environment = f"; {', '.join(names)} in the environment" if names else ""
    if not config.tables and not config.path.exists():
        return f"no settings file (`acespec init` writes {config.path}){environment}"
    return f"{config.path} is sound{environment}"


def _type_faults(config: Config, program: Command) -> Iterator[Finding]:
    """Values in the file that their options do not take."""
    told: set[tuple[str, str]] = set()
    for path, command in option_names.walk(program):
        table = _defaults(config, path)
        for setting in option_names.settings_at(path, command):
            place = config.origins.get((path, setting.name))
            if place is None or (place, setting.name) in told:
                continue
            if (why := _refusal(setting, table[setting.name], command)) is not None:
                told.add((place, setting.name))
                yield fault(
                    CHECK,
                    f"{config.path} sets {setting.key!r} in {place} to what it cannot be: {why}",
                    _remedy(setting),
                )


def _defaults(config: Config, path: option_names.Path) -> dict[str, object]:
    table: object = config.defaults
    for name in path:
        table = table.get(name, {}) if isinstance(table, dict) else {}
    return table if isinstance(table, dict) else {}


def _refusal(setting: Setting, value: object, command: Command) -> str | None:
    """Why the option does not take the value; None if it does."""
    ctx = command.make_context(command.name or "", [], resilient_parsing=True)
    try:
        setting.option.process_value(ctx, value)
    except typer.BadParameter as error:
        return str(error.message).strip().rstrip(".")
    return None


def _remedy(setting: Setting) -> str:
    default = setting.option.default
    example = "" if default is None else f", such as the default {default!r}"
    return f"give it a value that {setting.flag} takes{example}; `acespec init --print` shows all"


def _strange_table(name: str, config: Config, program: Command) -> Finding:
    commands = program.commands if isinstance(program, TyperGroup) else {}
    near = difflib.get_close_matches(name, commands, n=1, cutoff=0.7)
    if near:
        return fault(CHECK, f"{config.path} has a table [{name}], which is no command", f"write [{near[0]}]")
    return ok(CHECK, f"{config.path} has a table [{name}] for another program, which acespec leaves alone")


def _exposed_secret(config: Config, program: Command) -> Finding | None:
    """A file with a key in it that others can read. Windows has no such bits."""
    secrets = {s.name for s in option_names.all_settings(program) if s.secret}
    held = any(name in secrets for _, name in config.origins)
    if not held or os.name == "nt" or not _open_to_others(config.path):
        return None
    return warning(
        CHECK, f"{config.path} holds a key, and others on this machine can read it", f"chmod 600 {config.path}"
    )


def _open_to_others(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def _misspelt(program: Command) -> Iterator[Finding]:
    """Variables of the environment that look like ours and are not."""
    known = {setting.environment or "" for setting in option_names.all_settings(program)} | NOT_OPTIONS
    known |= {"ACESPEC_CONFIG", "ACESPEC_PRINT_SETTINGS"}
    for name in sorted(os.environ):
        if name.startswith(option_names.PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=NEAR)
            if near:
                yield warning(
                    CHECK, f"{name} is set in the environment, and nothing reads it", f"did you mean {near[0]}?"
                )
