"""The command line `acespec`. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from acespec.edge import cli_options as opt
from acespec.edge import setup_cli
from acespec.edge.proxy import cli as proxy_cli
from acespec.edge.trace_cli import app as trace_app
from acespec.models.cli import app as models_app
from acespec.proto.command_line import LogLevelOption, config_of, require_sound, run, start_logging
from acespec.proto.sampling_params import SamplingParams

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
def generate(
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="The prompt; - reads stdin.", show_default=False)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout instead of text.", envvar="ACESPEC_JSON")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The prompt as it is, without the chat template.")] = False,
    verifier: opt.Verifier = None,
    insecure: opt.Insecure = False,
    tls_ca: opt.TlsCa = None,
    api_key: opt.ApiKey = None,
    api_key_file: opt.ApiKeyFile = None,
    target_rate: opt.TargetRate = None,
    outage_timeout: opt.OutageTimeout = 60.0,
    on_outage: opt.OnOutage = "wait",
    model: opt.Model = opt.DEFAULT_MODEL,
    drafter: opt.DrafterKind = "ngram",
    draft_model: opt.DraftModel = None,
    draft_profile: opt.DraftProfile = "m3-0.6b-4bit",
    acceptance: opt.Acceptance = "0.8",
    replay_ids: opt.ReplayIds = None,
    num_draft_tokens: opt.NumDraftTokens = "auto",
    controller: opt.ControllerName = None,
    draft_tree: opt.DraftTreeShape = opt.DEFAULT_TREE,
    max_kv_size: opt.MaxKvSize = 4096,
    draft_threads: opt.DraftThreads = 1,
    offline: opt.Offline = False,
    trace: opt.TraceFile = None,
    system_prompt: opt.SystemPrompt = None,
    temp: opt.Temperature = 0.0,
    top_p: opt.TopP = 1.0,
    top_k: opt.TopK = 0,
    min_p: opt.MinP = 0.0,
    repetition_penalty: opt.RepetitionPenalty = 1.0,
    frequency_penalty: opt.FrequencyPenalty = 0.0,
    presence_penalty: opt.PresencePenalty = 0.0,
    seed: opt.Seed = None,
    max_tokens: opt.MaxTokens = 256,
    min_tokens: opt.MinTokens = 0,
    stop: opt.Stop = None,
    ignore_eos: opt.IgnoreEos = False,
    logprobs: opt.Logprobs = False,
    top_logprobs: opt.TopLogprobs = 0,
    choices: opt.Choices = 1,
    json_schema: opt.JsonSchema = None,
    json_object: opt.JsonObject = False,
    regex: opt.Regex = None,
    grammar: opt.Grammar = None,
) -> None:
    """Answer one prompt. Text goes to stdout as it is committed, one line of figures to stderr at the end."""
    from acespec.edge import generate_command
    from acespec.edge.output_format import output_format
    from acespec.edge.run_options import RunOptions

    options = RunOptions(
        verifier=verifier,
        insecure=insecure,
        tls_ca=tls_ca,
        api_key=api_key,
        api_key_file=api_key_file,
        target_rate=target_rate,
        outage_timeout=outage_timeout,
        on_outage=on_outage,
        model=model,
        drafter=drafter,
        draft_model=draft_model,
        draft_profile=draft_profile,
        acceptance=acceptance,
        replay_ids=replay_ids,
        num_draft_tokens=num_draft_tokens,
        controller=controller,
        draft_tree=draft_tree,
        max_kv_size=max_kv_size,
        draft_threads=draft_threads,
        offline=offline,
        system_prompt=system_prompt,
        params=SamplingParams(temp, top_k, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty),
        seed=seed,
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
        min_tokens=min_tokens,
        ignore_eos=ignore_eos,
        top_logprobs=generate_command.alternatives(logprobs, top_logprobs, as_json),
        format=output_format(json_schema, json_object, regex, grammar),
        trace=trace,
    )
    generate_command.run(options, prompt, raw=raw, as_object=as_json, choices=choices)


@app.command()
def chat(
    verifier: opt.Verifier = None,
    insecure: opt.Insecure = False,
    tls_ca: opt.TlsCa = None,
    api_key: opt.ApiKey = None,
    api_key_file: opt.ApiKeyFile = None,
    target_rate: opt.TargetRate = None,
    outage_timeout: opt.OutageTimeout = 60.0,
    on_outage: opt.OnOutage = "wait",
    model: opt.Model = opt.DEFAULT_MODEL,
    drafter: opt.DrafterKind = "ngram",
    draft_model: opt.DraftModel = None,
    draft_profile: opt.DraftProfile = "m3-0.6b-4bit",
    acceptance: opt.Acceptance = "0.8",
    replay_ids: opt.ReplayIds = None,
    num_draft_tokens: opt.NumDraftTokens = "auto",
    controller: opt.ControllerName = None,
    draft_tree: opt.DraftTreeShape = opt.DEFAULT_TREE,
    max_kv_size: opt.MaxKvSize = 4096,
    draft_threads: opt.DraftThreads = 1,
    offline: opt.Offline = False,
    trace: opt.TraceFile = None,
    system_prompt: opt.SystemPrompt = None,
    temp: opt.Temperature = 0.0,
    top_p: opt.TopP = 1.0,
    top_k: opt.TopK = 0,
    min_p: opt.MinP = 0.0,
    repetition_penalty: opt.RepetitionPenalty = 1.0,
    frequency_penalty: opt.FrequencyPenalty = 0.0,
    presence_penalty: opt.PresencePenalty = 0.0,
    seed: opt.Seed = None,
    max_tokens: opt.MaxTokens = 1024,
    min_tokens: opt.MinTokens = 0,
    stop: opt.Stop = None,
    json_schema: opt.JsonSchema = None,
    json_object: opt.JsonObject = False,
    regex: opt.Regex = None,
    grammar: opt.Grammar = None,
) -> None:
    """Talk, one line a question. Ctrl-C stops an answer; /quit, Ctrl-D or Ctrl-C twice ends the chat."""
    from acespec.edge.chat import command as chat_command
    from acespec.edge.output_format import output_format
    from acespec.edge.run_options import RunOptions

    chat_command.run(
        RunOptions(
            verifier=verifier,
            insecure=insecure,
            tls_ca=tls_ca,
            api_key=api_key,
            api_key_file=api_key_file,
            target_rate=target_rate,
            outage_timeout=outage_timeout,
            on_outage=on_outage,
            model=model,
            drafter=drafter,
            draft_model=draft_model,
            draft_profile=draft_profile,
            acceptance=acceptance,
            replay_ids=replay_ids,
            num_draft_tokens=num_draft_tokens,
            controller=controller,
            draft_tree=draft_tree,
            max_kv_size=max_kv_size,
            draft_threads=draft_threads,
            offline=offline,
            system_prompt=system_prompt,
            params=SamplingParams(temp, top_k, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty),
            seed=seed,
            max_tokens=max_tokens,
            stop=tuple(stop or ()),
            min_tokens=min_tokens,
            format=output_format(json_schema, json_object, regex, grammar),
            trace=trace,
        )
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
