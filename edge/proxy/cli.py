"""The command `acespec proxy`: its options. Nothing heavy is imported before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from acespec.edge import cli_options as opt
from acespec.proto.sampling_params import SamplingParams

SERVER = "HTTP server"

Host = Annotated[
    str,
    typer.Option(
        help="Where to listen; 0.0.0.0 is open to others.", envvar="ACESPEC_PROXY_HOST", rich_help_panel=SERVER
    ),
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="0 = any free one.", envvar="ACESPEC_PROXY_PORT", rich_help_panel=SERVER)
]
ProxyKey = Annotated[
    str | None,
    typer.Option(
        help="Key that requests have to bring. Others can see a command line: prefer --proxy-key-file.",
        envvar="ACESPEC_PROXY_KEY",
        show_envvar=False,
        rich_help_panel=SERVER,
    ),
]
ProxyKeyFile = Annotated[
    Path | None,
    typer.Option(help="File of such keys, one a line.", envvar="ACESPEC_PROXY_KEY_FILE", rich_help_panel=SERVER),
]
Cors = Annotated[
    list[str] | None,
    typer.Option(
        "--cors",
        help="Origin whose web pages may use the API; * for all; may be repeated.",
        envvar="ACESPEC_PROXY_CORS",
        rich_help_panel=SERVER,
    ),
]
MaxSessions = Annotated[
    int,
    typer.Option(
        min=1,
        help="Answers at once; each session may load the draft model.",
        envvar="ACESPEC_PROXY_MAX_SESSIONS",
        rich_help_panel=SERVER,
    ),
]
MaxWaiting = Annotated[
    int,
    typer.Option(
        min=0, help="Answers that may wait for a session.", envvar="ACESPEC_PROXY_MAX_WAITING", rich_help_panel=SERVER
    ),
]
Drain = Annotated[
    float,
    typer.Option(
        "--drain",
        min=0.0,
        help="Seconds that answers under way may take after a signal to stop.",
        envvar="ACESPEC_PROXY_DRAIN",
        rich_help_panel=SERVER,
    ),
]
MostTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        "-m",
        min=1,
        max=2**31 - 1,
        help="Most tokens of an answer whose request names no number. Default: what the model has room for.",
        envvar="ACESPEC_MAX_TOKENS",
        rich_help_panel=opt.SAMPLING,
    ),
]


def proxy(
    host: Host = "127.0.0.1",
    port: Port = 8080,
    proxy_key: ProxyKey = None,
    proxy_key_file: ProxyKeyFile = None,
    cors: Cors = None,
    max_sessions: MaxSessions = 4,
    max_waiting: MaxWaiting = 64,
    drain: Drain = 5.0,
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
    temp: opt.Temperature = 1.0,
    top_p: opt.TopP = 1.0,
    top_k: opt.TopK = 0,
    min_p: opt.MinP = 0.0,
    repetition_penalty: opt.RepetitionPenalty = 1.0,
    frequency_penalty: opt.FrequencyPenalty = 0.0,
    presence_penalty: opt.PresencePenalty = 0.0,
    seed: opt.Seed = None,
    max_tokens: MostTokens = None,
    min_tokens: opt.MinTokens = 0,
    stop: opt.Stop = None,
) -> None:
    """Serve OpenAI's API on this machine, for every tool that speaks it; a page to chat at the same address.

    Sampling options hold where a request says nothing.
    """
    from acespec.edge.outage_policy import OnOutage, outage_policy
    from acespec.edge.proxy import serve
    from acespec.edge.proxy.parameters import Defaults
    from acespec.edge.proxy.settings import Settings, read_keys
    from acespec.edge.run_options import RunOptions

    params = SamplingParams(temp, top_k, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty)
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
        system_prompt=None,
        params=params,
        seed=seed,
        max_tokens=max_tokens or 1,
        stop=tuple(stop or ()),
        trace=trace,
    )
    settings = Settings(
        host=host,
        port=port,
        keys=read_keys(proxy_key, proxy_key_file),
        origins=tuple(cors or ()),
        max_sessions=max_sessions,
        max_waiting=max_waiting,
        patience_s=0.0 if outage_policy(on_outage) is OnOutage.FAIL else outage_timeout,
        drain_s=drain,
        model=model,
        draft_model=draft_model,
        defaults=Defaults(params, seed, max_tokens, min_tokens, tuple(stop or ()), target_rate),
    )
    serve.run(options, settings)
