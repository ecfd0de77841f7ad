"""The command line `acespec`. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from acespec.edge import cli_options as opt
from acespec.edge import setup_cli
from acespec.edge.option_sets import EdgeOptions, FormatOptions, SamplingOptions, expanding
from acespec.edge.proxy import cli as proxy_cli
from acespec.edge.tracing.trace_cli import app as trace_app
from acespec.models.cli import app as models_app
from acespec.proto.command_line import LogLevelOption, config_of, require_sound, run, start_logging

app = typer.Typer(
    name="acespec",
    help="Generate text with a model in the cloud and a drafter here: exact output over a narrow link.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(models_app)
app.add_typer(trace_app)


@app.callback()
def root(
    ctx: typer.Context,
    config: opt.Config = None,
    log_level: LogLevelOption = "warning",
    show_version: setup_cli.VersionOption = False,
) -> None:
    """Generate text with a model in the cloud and a drafter here: exact output over a narrow link."""
    if ctx.invoked_subcommand not in setup_cli.UNHINDERED:
        require_sound(config_of(ctx))
    start_logging(log_level)


@app.command()
@expanding()
def generate(
    edge: EdgeOptions,
    sampling: SamplingOptions,
    form: FormatOptions,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="The prompt; - reads stdin.", show_default=False)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout instead of text.", envvar="ACESPEC_JSON")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The prompt as it is, without the chat template.")] = False,
    system_prompt: opt.SystemPrompt = None,
    max_tokens: opt.MaxTokens = 256,
    ignore_eos: opt.IgnoreEos = False,
    logprobs: opt.Logprobs = False,
    top_logprobs: opt.TopLogprobs = 0,
    choices: opt.Choices = 1,
) -> None:
    """Answer one prompt. Text goes to stdout as it is committed, one line of figures to stderr at the end."""
    from acespec.edge import generate_command
    from acespec.edge.run_options import RunOptions

    options = RunOptions.of(
        edge,
        sampling,
        system_prompt=system_prompt,
        max_tokens=max_tokens,
        ignore_eos=ignore_eos,
        top_logprobs=generate_command.alternatives(logprobs, top_logprobs, as_json),
        format=form.format,
    )
    generate_command.run(options, prompt, raw=raw, as_object=as_json, choices=choices)


@app.command()
@expanding()
def chat(
    edge: EdgeOptions,
    sampling: SamplingOptions,
    form: FormatOptions,
    system_prompt: opt.SystemPrompt = None,
    max_tokens: opt.MaxTokens = 1024,
) -> None:
    """Talk. Guesses are dimmed until the model has confirmed them. Ctrl-C stops an answer; /help says what else there
    is; /quit, Ctrl-D or Ctrl-C twice ends the chat."""
    from acespec.edge.chat import command as chat_command
    from acespec.edge.run_options import RunOptions

    chat_command.run(
        RunOptions.of(edge, sampling, system_prompt=system_prompt, max_tokens=max_tokens, format=form.format)
    )


app.command()(proxy_cli.proxy)
app.command("serve", hidden=True)(proxy_cli.proxy)
for command in (setup_cli.init, setup_cli.doctor, setup_cli.version):
    app.command()(command)


def main() -> None:
    """Entry point of `acespec`."""
    # gRPC's core logs to stderr by itself and has no other switch; what matters reaches us as an error.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        run(app)
    except BrokenPipeError:
        # Whoever read our output has enough; the interpreter's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
