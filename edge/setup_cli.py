"""`acespec init`, `doctor` and `version`: what helps before anything is generated. Nothing heavy is imported here."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from acespec.edge import cli_options as opt
from acespec.edge.option_sets import ModelOptions, expanding
from acespec.proto.command_line import config_of

if TYPE_CHECKING:
    from typer._click import Command
else:
    Command = object

UNHINDERED = frozenset({"doctor", "init", "version", "models", "trace"})
"""Commands that run whatever is wrong with the settings file: they mend it, or do not need it."""


def init(
    ctx: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    to_stdout: Annotated[bool, typer.Option("--print", help="Show it on stdout and write nothing.")] = False,
) -> None:
    """Write a settings file with every option, its meaning, its default and its names, all commented out."""
    from acespec.edge.init_command import settings_text, write_settings

    program = ctx.find_root().command
    if to_stdout:
        sys.stdout.write(settings_text(program))
    else:
        write_settings(program, config_of(ctx).path, force=force)


@expanding()
def doctor(
    ctx: typer.Context,
    models: ModelOptions,
    session: Annotated[
        bool, typer.Option("--session/--no-session", help="Generate a few tokens, and measure the link by it.")
    ] = True,
    wait: Annotated[
        float, typer.Option(min=0.1, help="Seconds that each step over the network may take; a turn twice that.")
    ] = 15.0,
    as_json: opt.Json = False,
) -> None:
    """Check settings, packages, models and the way to the verifier; say what each fault means and what to do."""
    from acespec.edge.doctor import command
    from acespec.edge.run_options import RunOptions

    options = RunOptions.of(models, outage_timeout=wait, on_outage="fail", seed=0, max_tokens=16)
    program = ctx.find_root().command
    visit = command.Visit(options, config_of(ctx), program, _listens(ctx, program), session, wait)
    raise typer.Exit(command.run(visit, as_object=as_json))


def version(as_json: opt.Json = False) -> None:
    """Print the version, and what else a bug report needs; no secret is in it."""
    _print_version(as_json)


def print_version(_ctx: typer.Context, _param: typer.CallbackParam, value: bool) -> bool:
    """`--version`."""
    if value:
        _print_version(False)
        raise typer.Exit
    return value


VersionOption = Annotated[
    bool,
    typer.Option("--version", help="Show versions and stop.", is_eager=True, callback=print_version),
]


def _print_version(as_json: bool) -> None:
    from acespec.edge.version_report import report_lines, version_report

    report = version_report()
    sys.stdout.write(json.dumps(report, indent=2) if as_json else "\n".join(report_lines(report)))
    sys.stdout.write("\n")


def _listens(ctx: typer.Context, program: Command) -> tuple[str, int] | None:
    """Where `acespec proxy` would listen by the settings that are in force."""
    proxy = program.commands.get("proxy") if isinstance(program, TyperGroup) else None
    if proxy is None:
        return None
    settings = proxy.make_context("proxy", [], parent=ctx.find_root(), resilient_parsing=True).params
    host, port = settings.get("host"), settings.get("port")
    return (host, port) if isinstance(host, str) and isinstance(port, int) else None
