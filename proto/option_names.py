"""What a command line can be told, found by walking it: the name of each option in a file and in the environment.

Both follow from the option: `--top-p` is `ACESPEC_TOP_P` in the environment and `top_p` in a file. Nothing is listed
twice, so an option that is added anywhere has its names at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from typer.core import TyperCommand, TyperGroup, TyperOption

if TYPE_CHECKING:
    from typer._click import Command
else:
    Command = object

Path: TypeAlias = tuple[str, ...]
"""The words behind the program's name that call a command: `("models", "pull")`; empty for the program itself."""

PREFIX = "ACESPEC_"
ACTIONS = frozenset({"help", "show_version", "print_settings", "install_completion", "show_completion"})
"""Options that do something else than the command and end it: they are no settings."""
NOT_IN_FILES = ACTIONS | {"config"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One option of the command at `path`."""

    path: Path
    option: TyperOption

    @property
    def name(self) -> str:
        """The parameter that receives it."""
        return str(self.option.name)

    @property
    def flag(self) -> str:
        """Its first long spelling, `--top-p`; an option with a short one only has that."""
        return _flags(self.option)[0]

    @property
    def key(self) -> str:
        """Its key in a file."""
        return _key(self.flag)

    @property
    def keys(self) -> frozenset[str]:
        """Every key by which a file may name it."""
        return frozenset(_key(flag) for flag in _flags(self.option))

    @property
    def environment(self) -> str | None:
        """Its environment name; None if it has none."""
        names = self.option.envvar
        return names if isinstance(names, str) or names is None else names[0]

    @property
    def secret(self) -> bool:
        """True if its value must never be shown: a key or password itself, not a file that holds one."""
        return self.name.endswith(("key", "token", "secret", "password")) and not self.name.startswith("tls_")


def walk(command: Command, path: Path = ()) -> Iterator[tuple[Path, Command]]:
    """The command and all below it."""
    yield path, command
    if isinstance(command, TyperGroup):
        for name, child in command.commands.items():
            yield from walk(child, (*path, name))


def settings_at(path: Path, command: Command) -> list[Setting]:
    """The options of one command that a file may set."""
    options = [option for option in command.params if isinstance(option, TyperOption)]
    return [Setting(path, option) for option in options if option.name not in NOT_IN_FILES]


def all_settings(program: Command) -> list[Setting]:
    """The options of a program and of its commands that a file may set, in the order of the help."""
    return [setting for path, command in walk(program) for setting in settings_at(path, command)]


def name_environment(program: Command) -> None:
    """Give each option without an environment name the one that follows from its flag."""
    for _, command in walk(program):
        for option in command.params:
            if isinstance(option, TyperOption) and option.envvar is None and option.name not in ACTIONS:
                option.envvar = environment_name(_flags(option)[0])


def environment_name(flag: str) -> str:
    """`--top-p` -> `ACESPEC_TOP_P`."""
    return PREFIX + _key(flag).upper()


def is_command(command: Command) -> bool:
    """True if it does something by itself, and is no group of others."""
    return isinstance(command, TyperCommand)


def aliased(program: TyperGroup, name: str) -> str:
    """The first command that does the same as `name`: an alias has no table of its own."""
    callback = _function(program.commands[name])
    return next(first for first, command in program.commands.items() if _function(command) is callback)


def _function(command: Command) -> object:
    return getattr(command.callback, "__wrapped__", command.callback) or command


def _flags(option: TyperOption) -> list[str]:
    return [flag for flag in option.opts if flag.startswith("--")] or list(option.opts)


def _key(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")
