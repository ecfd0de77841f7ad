"""The command `acespec proxy`: its options. Nothing heavy is imported before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from acespec.edge import cli_options as opt
from acespec.edge.option_sets import EdgeOptions, SamplingOptions, expanding

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


@expanding(temp=1.0)
def proxy(
    edge: EdgeOptions,
    sampling: SamplingOptions,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    proxy_key: ProxyKey = None,
    proxy_key_file: ProxyKeyFile = None,
    cors: Cors = None,
    max_sessions: MaxSessions = 4,
    max_waiting: MaxWaiting = 64,
    drain: Drain = 5.0,
    max_tokens: MostTokens = None,
) -> None:
    """Serve OpenAI's API on this machine, for every tool that speaks it; a page to chat at the same address.

    Sampling options hold where a request says nothing.
    """
    from acespec.edge.outage_policy import OnOutage, outage_policy
    from acespec.edge.proxy import serve
    from acespec.edge.proxy.parameters import Defaults
    from acespec.edge.proxy.settings import Settings, read_keys
    from acespec.edge.run_options import RunOptions

    options = RunOptions.of(edge, sampling, max_tokens=max_tokens or 1)
    settings = Settings(
        host=host,
        port=port,
        keys=read_keys(proxy_key, proxy_key_file),
        origins=tuple(cors or ()),
        max_sessions=max_sessions,
        max_waiting=max_waiting,
        patience_s=0.0 if outage_policy(edge.on_outage) is OnOutage.FAIL else edge.outage_timeout,
        drain_s=drain,
        model=edge.model,
        draft_model=edge.draft_model,
        defaults=Defaults(options.params, options.seed, max_tokens, options.min_tokens, options.stop, edge.target_rate),
    )
    serve.run(options, settings)
