"""`acespec init`: a settings file in which every option stands, commented out, with its meaning and its names.

What the main commands share stands once, in front of all tables; a table holds what is its command's own, or has
another default there.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typer.core import TyperGroup

from acespec.proto import option_names
from acespec.proto.errors import UsageError
from acespec.proto.option_names import Setting
from acespec.proto.print_settings import toml_value

if TYPE_CHECKING:
    from typer._click import Command
else:
    Command = object

WIDTH = 110
UNSET = {"int": "0", "float": "0.0", "bool": "false"}
HEAD = (
    "Settings of acespec. Each one stands here with its default, commented out: take the # away in front of a name to "
    "set it. What is given on the command line wins, then what the environment says (the name in brackets), then this "
    "file.",
    "",
    "Keys in front of all tables hold for every command that has the option; a table, named for a command, wins over "
    "them. `acespec chat --print-settings` shows what is in force and where it comes from; `acespec doctor` checks "
    "this file.",
)


def write_settings(program: Command, path: Path, *, force: bool) -> None:
    """Write the file.

    Raises:
        UsageError: it is there already and `force` is not set, or cannot be written.
    """
    if path.exists() and not force:
        raise UsageError(f"{path} is there already: --force writes it anew, --print shows what would be written")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # It may come to hold a key: nobody else may read it.
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if force else os.O_EXCL), 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as file:
            file.write(settings_text(program))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place with --config FILE") from error
    sys.stderr.write(f"wrote {path}; set verifier in it, then run acespec doctor\n")


def settings_text(program: Command) -> str:
    """The whole file."""
    settings = [s for s in option_names.all_settings(program) if s.path != ("init",) and not _is_alias(program, s)]
    shared = _shared(settings)
    blocks = ["\n".join(map(_comment, HEAD)), *_entries(shared.values())]
    tables: dict[option_names.Path, list[Setting]] = {}
    for setting in settings:
        if not (setting.key in shared and _same(setting, shared[setting.key])):
            tables.setdefault(setting.path, []).append(setting)
    for path, own in tables.items():
        blocks += [f"[{'.'.join(path)}]", *_entries(own)]
    return "\n\n".join(blocks) + "\n"


def _is_alias(program: Command, setting: Setting) -> bool:
    if not setting.path or not isinstance(program, TyperGroup):
        return False
    return option_names.aliased(program, setting.path[0]) != setting.path[0]


def _shared(settings: Sequence[Setting]) -> dict[str, Setting]:
    """By key: what the program itself takes, and what two commands or more take in the same sense.

    A key that is also the name of a command stays in the tables: TOML cannot have both.
    """
    found: dict[str, Setting] = {}
    commands = {setting.path[0] for setting in settings if setting.path}
    for setting in settings:
        key = setting.key
        if key in found or key in commands:
            continue
        others = [s for s in settings if s.key == key and s.path != setting.path]
        if not setting.path or any(_same(setting, other) for other in others):
            found[key] = setting
    return found


def _same(a: Setting, b: Setting) -> bool:
    return (a.option.help, a.option.default) == (b.option.help, b.option.default)


def _entries(settings: Iterable[Setting]) -> list[str]:
    """What is said of each; a heading wherever the help has another panel."""
    entries: list[str] = []
    panel: str | None = None
    for setting in settings:
        if setting.option.rich_help_panel != panel:
            panel = setting.option.rich_help_panel
            entries.append(f"# --- {panel or 'Other'}")
        entries.append(_entry(setting))
    return entries


def _entry(setting: Setting) -> str:
    option = setting.option
    about = option.help or ""
    if option.default is None and "default" not in about.lower():
        about = f"{about} No default."
    if setting.secret:
        about = f"{about} A file of its own is a better place."
    name = f" [{setting.environment}]" if setting.environment else ""
    return f"{_comment(about + name)}\n#{setting.key} = {_value(setting)}"


def _value(setting: Setting) -> str:
    default: object = setting.option.default
    if default is not None:
        return toml_value(default)
    return "[]" if setting.option.multiple else UNSET.get(setting.option.bare_type().lower(), '""')


def _comment(text: str) -> str:
    lines = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join(f"# {line}".rstrip() for line in lines)
