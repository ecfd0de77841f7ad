"""`--print-settings`: what a command would run with, and where each value comes from, as lines of TOML."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperOption
from typer.main import get_command

from acespec.proto import option_names
from acespec.proto.config_file import Config
from acespec.proto.option_names import Setting

if TYPE_CHECKING:
    from typer._click import Command, Context
else:
    Command = Context = object

CONFIG = "acespec.config"
"""Where a run keeps its settled config file, in click's `meta`."""
HIDDEN = '"(set, not shown)"'


def add_print_settings(program: Command) -> None:
    """Let every command answer `--print-settings`."""
    for _, command in option_names.walk(program):
        if option_names.is_command(command):
            command.params.append(_option())


def toml_value(value: object) -> str:
    """A value as TOML writes it. Nothing (None) is an empty text."""
    match value:
        case None:
            return '""'
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str() | Path():
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case Sequence():
            return f"[{', '.join(toml_value(item) for item in value)}]"
        case _:
            raise TypeError(f"no setting is of type {type(value).__name__}")


def _option() -> TyperOption:
    """The option itself, taken from a command that has it: Typer has no other way that its versions share."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def carrier(
        print_settings: Annotated[
            bool,
            typer.Option(
                "--print-settings", help="Show each setting and where it comes from, and stop.", callback=_print_instead
            ),
        ] = False,
    ) -> None: ...

    option = get_command(app).params[0]
    assert isinstance(option, TyperOption)
    option.expose_value = False
    return option


def _print_instead(ctx: typer.Context, _param: typer.CallbackParam, value: bool) -> bool:
    if value and not ctx.resilient_parsing:
        # The values that come behind are not read yet, but the command is only called when all are.
        ctx.command.callback = lambda **_: _show(ctx)
    return value


def _show(ctx: typer.Context) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in settings_lines(ctx)))


def settings_lines(ctx: typer.Context) -> list[str]:
    """One line a setting: `key = value  # where from`, commented out where nothing is set."""
    path = tuple(ctx.command_path.split()[1:]) if ctx.parent else ()
    own = [(setting, ctx) for setting in option_names.settings_at(path, ctx.command)]
    root = ctx.find_root()
    general = [] if root is ctx else [(setting, root) for setting in option_names.settings_at((), root.command)]
    rows = [_row(setting, context) for setting, context in (*general, *own)]
    width = max((len(row[0]) for row in rows), default=0)
    return [f"{text:{width}}  # {source}" for text, source in rows]


def _row(setting: Setting, ctx: Context) -> tuple[str, str]:
    value = ctx.params.get(setting.name)
    source = ctx.get_parameter_source(setting.name)
    shown = HIDDEN if setting.secret and value else toml_value(value)
    text = f"# {setting.key}" if value is None else f"{setting.key} = {shown}"
    return text, _origin(setting, "DEFAULT" if source is None else source.name, ctx)


def _origin(setting: Setting, source: str, ctx: Context) -> str:
    match source:
        case "COMMANDLINE":
            return "command line"
        case "ENVIRONMENT":
            return f"environment {setting.environment}"
        case "DEFAULT_MAP":
            config = ctx.meta.get(CONFIG)
            if isinstance(config, Config):
                return f"{config.path}, {config.origins.get((setting.path, setting.name), 'the top')}"
    return "default"
