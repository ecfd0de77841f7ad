"""What the three command lines share: how errors end a process, where settings come from, how logs look.

Settings come from, in this order: the command line, the environment (`ACESPEC_*`), a TOML file, the default. The file
is read into click's default map: its keys are option names with `_` for `-`, in a table named for the command.
"""

from __future__ import annotations

import logging
import sys
import tomllib
from pathlib import Path
from typing import Annotated

import platformdirs
import typer

from acespec.proto.errors import AcespecError, UsageError

# Newer Typer brings its own copy of click: reach its exceptions through the ones that Typer exports.
_ClickUsageError: type[Exception] = typer.BadParameter.__bases__[0]
_ClickError: type[Exception] = _ClickUsageError.__bases__[0]

LEVELS = ("debug", "info", "warning", "error")


def config_path() -> Path:
    """Where the TOML file is looked for if none is named."""
    return Path(platformdirs.user_config_dir("acespec")) / "acespec.toml"


def read_config(path: Path | None) -> dict[str, object]:
    """Tables of the TOML file; empty if none was named and none is in the usual place.

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


def _load_config(ctx: typer.Context, _param: typer.CallbackParam, value: Path | None) -> Path | None:
    if not ctx.resilient_parsing:
        ctx.default_map = {**(ctx.default_map or {}), **read_config(value)}
    return value


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML file with a table of options for each command.",
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


def run(app: typer.Typer) -> None:
    """Run a command line: 0 success, 1 failure, 2 usage, 130 on Ctrl-C; an error is one line on stderr."""
    try:
        code = app(standalone_mode=False)
    except AcespecError as error:
        _die(str(error), error.exit_code)
    except _ClickUsageError as error:
        if not _message(error):  # No arguments: the help has been printed.
            sys.exit(2)
        _die(f"{_message(error)} (--help shows what there is)", 2)
    except _ClickError as error:
        _die(_message(error), 1)
    except (typer.Abort, KeyboardInterrupt):
        _die("interrupted", 130)
    if code == 130:  # Typer has already made an exit status of Ctrl-C.
        _die("interrupted", 130)
    sys.exit(code if isinstance(code, int) else 0)


def _message(error: Exception) -> str:
    return str(error.format_message()) if hasattr(error, "format_message") else str(error)


def _die(message: str, code: int) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(code)
