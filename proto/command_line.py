"""What the three command lines share: how errors end a process, where settings come from, how logs look.

Settings come from, in this order: the command line, the environment (`ACESPEC_*`), a TOML file (`config_file.py`), the
default. Every option has an environment name (`option_names.py`), and every command answers `--print-settings`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.main import get_command

from acespec.proto import config_file, option_names
from acespec.proto.config_file import Config
from acespec.proto.errors import AcespecError, UsageError
from acespec.proto.print_settings import CONFIG, add_print_settings

if TYPE_CHECKING:
    from typer._click import Command
else:
    Command = object

# Newer Typer brings its own copy of click: reach its exceptions through the ones that Typer exports.
_ClickUsageError: type[Exception] = typer.BadParameter.__bases__[0]
_ClickError: type[Exception] = _ClickUsageError.__bases__[0]

LEVELS = ("debug", "info", "warning", "error")


def load_config(
    ctx: typer.Context,
    path: Path | None,
    *,
    shared: bool = False,
    relatives: Mapping[str, tuple[str, ...]] = config_file.NO_RELATIVES,
) -> Config:
    """Make the file the defaults of all commands; `config_of` has it from then on. Faults are not raised."""
    config = config_file.load(path, ctx.command, shared=shared, relatives=relatives)
    ctx.default_map = {**(ctx.default_map or {}), **config.defaults}
    ctx.meta[CONFIG] = config
    return config


def config_of(ctx: typer.Context) -> Config:
    """The settled config file of this run."""
    config = ctx.meta.get(CONFIG)
    if not isinstance(config, Config):
        raise RuntimeError("no config file was looked for yet")
    return config


def require_sound(config: Config) -> None:
    """Raise UsageError if something is wrong with the file."""
    if config.faults:
        fault, more = config.faults[0], len(config.faults) - 1
        raise UsageError(f"{fault.what}: {fault.fix}" + (f" ({more} more: `acespec doctor`)" if more else ""))


def _load_config(ctx: typer.Context, _param: typer.CallbackParam, value: Path | None) -> Path | None:
    if not ctx.resilient_parsing:
        require_sound(load_config(ctx, value))
    return value


CONFIG_HELP = "TOML file with a table of options for each command."
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help=CONFIG_HELP,
        envvar="ACESPEC_CONFIG",
        is_eager=True,
        callback=_load_config,
        show_default=False,
    ),
]

LogLevelOption = Annotated[
    str, typer.Option("--log-level", help="debug, info, warning or error.", envvar="ACESPEC_LOG_LEVEL")
]


def start_logging(level: str) -> None:
    """Send logs to stderr.

    Raises:
        UsageError: no such level.
    """
    if level not in LEVELS:
        raise UsageError(f"--log-level {level}: choose one of {', '.join(LEVELS)}")
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S"
    )


def program_of(app: typer.Typer) -> Command:
    """The commands of a program, every option with its environment name."""
    program = get_command(app)
    if not (program.context_settings or {}).get("auto_envvar_prefix"):
        option_names.name_environment(program)
    add_print_settings(program)
    return program


def run(app: typer.Typer) -> None:
    """Run a command line: 0 success, 1 failure, 2 usage, 130 on Ctrl-C; an error is one line on stderr."""
    try:
        # Named here, so that help and completion say the same however the program was started.
        code = program_of(app)(standalone_mode=False, prog_name=app.info.name or None)
    except AcespecError as error:
        _die(str(error), error.exit_code)
    except _ClickUsageError as error:
        if not _message(error):  # No arguments: the help has been printed.
            sys.exit(2)
        _die(f"{_message(error)}{_origin(error)} (--help shows what there is)", 2)
    except _ClickError as error:
        _die(_message(error), 1)
    except (typer.Abort, KeyboardInterrupt):
        _die("interrupted", 130)
    if code == 130:  # Typer has already made an exit status of Ctrl-C.
        _die("interrupted", 130)
    sys.exit(code if isinstance(code, int) else 0)


def _message(error: Exception) -> str:
    return str(error.format_message()) if hasattr(error, "format_message") else str(error)


def _origin(error: Exception) -> str:
    """Where a bad value came from, if that was not the command line."""
    ctx, param = getattr(error, "ctx", None), getattr(error, "param", None)
    if ctx is None or param is None:
        return ""
    source = ctx.get_parameter_source(param.name)
    if source is None:
        return ""
    if source.name == "ENVIRONMENT":
        return f"; it is set by {param.envvar}" if isinstance(param.envvar, str) else "; it is set in the environment"
    return f"; it is set in {config_of(ctx).path}" if source.name == "DEFAULT_MAP" else ""


def _die(message: str, code: int) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(code)
