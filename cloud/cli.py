"""The command line `acespec-verifier`. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from acespec.proto.command_line import ConfigOption, LogLevelOption, run, start_logging
from acespec.proto.errors import UsageError

if TYPE_CHECKING:
    from acespec.cloud.device import Device

app = typer.Typer(
    name="acespec-verifier",
    help="Run the cloud side: an exact verifier that commits tokens and checks the drafts of edge clients.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

BACKENDS = ("torch", "replay")
DeviceOption = Annotated[
    str,
    typer.Option(
        help="'cuda' runs the model on an NVIDIA GPU, 'cpu' on the processor, 'auto' on a GPU if there is one.",
        envvar="ACESPEC_DEVICE",
    ),
]
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@app.callback()
def root(config: ConfigOption = None, log_level: LogLevelOption = "info") -> None:
    """Run the cloud side: an exact verifier that commits tokens and checks the drafts of edge clients."""
    start_logging(log_level)


@app.command()
def serve(
    model: Annotated[
        str,
        typer.Option(
            help="Name, Hugging Face repo, or local folder or GGUF file of the target.", envvar="ACESPEC_MODEL"
        ),
    ] = "smollm2-135m",
    backend: Annotated[
        str,
        typer.Option(help="'torch' runs the model; 'replay' commits known ids in prescribed times, without any model."),
    ] = "torch",
    device: DeviceOption = "auto",
    profile: Annotated[str, typer.Option(help="Replay: whose times; see docs/replay.md.")] = "h100-8b",
    replay_ids: Annotated[
        Path | None, typer.Option(help="Replay: recorded texts, JSON lines; default: a synthetic text.")
    ] = None,
    vocab: Annotated[int, typer.Option(help="Replay: ids of the vocabulary.", min=260, max=2**20)] = 151_936,
    background: Annotated[int, typer.Option(help="Replay: sessions of others that load each step.", min=0)] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.", envvar="ACESPEC_HOST")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.", envvar="ACESPEC_PORT")] = 7717,
    insecure: Annotated[bool, typer.Option("--insecure", help="Serve without TLS; loopback only.")] = False,
    tls_cert: Annotated[
        Path | None,
        typer.Option(help="PEM certificate chain (ECDSA P-256 costs the fewest bytes).", envvar="ACESPEC_TLS_CERT"),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM private key.", envvar="ACESPEC_TLS_KEY")] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="Bearer keys that are let in, one a line.", envvar="ACESPEC_API_KEY_FILE")
    ] = None,
    free_run: Annotated[
        str,
        typer.Option(
            help="Plain steps for sessions that are not due: 'always' buys latency, 'idle' uses only slack, "
            "'never' waits for drafts.",
            envvar="ACESPEC_FREE_RUN",
        ),
    ] = "idle",
    target_rate: Annotated[
        float,
        typer.Option(
            help="Tokens/s granted to a session that asks for nothing; 0 = never due.", envvar="ACESPEC_TARGET_RATE"
        ),
    ] = 20.0,
    max_rate: Annotated[float, typer.Option(help="Most tokens/s that a session is granted; 0 = no bound.")] = 0.0,
    max_draft: Annotated[int, typer.Option(help="Draft tokens verified in one step.", min=0, max=63)] = 16,
    max_rows: Annotated[
        str,
        typer.Option(help="Rows of one step over all sessions, prefill not counted; 'auto': the knee of the timing."),
    ] = "auto",
    timing: Annotated[
        Path | None,
        typer.Option(
            help="Timing profile that 'bench --out' saved; default: a quick measurement.", envvar="ACESPEC_TIMING"
        ),
    ] = None,
    kv_memory: Annotated[
        float | None,
        typer.Option(
            help="GiB of KV cache for all sessions. [CPU: at most 1; GPU: most of what is free]",
            envvar="ACESPEC_KV_MEMORY",
            min=0.001,
        ),
    ] = None,
    share_prefixes: Annotated[
        bool,
        typer.Option(
            "--share-prefixes",
            help="Let keys profit from each other's prompts. They can then tell by timing what others have asked.",
        ),
    ] = False,
    target_ttft: Annotated[
        float,
        typer.Option(help="Seconds to the first token, from which on a prompt is as urgent as a due session.", min=0),
    ] = 1.0,
    max_sessions: Annotated[int, typer.Option(help="Sessions kept, detached ones included.", min=1)] = 64,
    max_length: Annotated[
        int | None,
        typer.Option(help="Most tokens of a sequence; default: the model's limit.", envvar="ACESPEC_MAX_LENGTH"),
    ] = None,
    grace: Annotated[float, typer.Option(help="Seconds that a detached session keeps its KV.")] = 120.0,
    threads: Annotated[
        int,
        typer.Option(
            help="CPU threads of the model. More than the free cores is far slower.", envvar="ACESPEC_THREADS"
        ),
    ] = 1,
    offline: Annotated[bool, typer.Option("--offline", help="Fetch nothing.", envvar="ACESPEC_OFFLINE")] = False,
    allow_inexact: Annotated[
        bool, typer.Option("--allow-inexact", help="Serve although the self-check failed; clients are told.")
    ] = False,
    reflection: Annotated[bool, typer.Option("--reflection", help="gRPC reflection, for development.")] = False,
    drain: Annotated[float, typer.Option(help="Seconds that running turns get after SIGINT or SIGTERM.")] = 5.0,
) -> None:
    """Serve a target model. Prints 'ready' on stderr once it accepts streams; Ctrl-C drains and ends."""
    from acespec.cloud.scheduler import FreeRun
    from acespec.cloud.serve import ReplayOptions, Settings, serve_forever

    if backend not in BACKENDS:
        raise UsageError(f"--backend {backend}: choose one of {', '.join(BACKENDS)}")
    if free_run not in list(FreeRun):
        raise UsageError(f"--free-run {free_run}: choose one of {', '.join(FreeRun)}")
    if insecure == (tls_cert is not None and tls_key is not None):
        raise UsageError("pass either --tls-cert and --tls-key, or --insecure on a loopback address")
    if insecure and host not in LOOPBACK:
        raise UsageError(f"--insecure on {host} would send keys and text in the clear: use --tls-cert and --tls-key")
    serve_forever(
        Settings(
            model=model,
            backend=backend,
            device=_device(device),
            replay=ReplayOptions(profile, replay_ids, vocab, background),
            address=f"{host}:{port}",
            tls_cert=tls_cert,
            tls_key=tls_key,
            api_key_file=api_key_file,
            free_run=FreeRun(free_run),
            target_rate=target_rate,
            max_rate=max_rate,
            max_draft=max_draft,
            max_rows=_rows(max_rows),
            timing=timing,
            kv_gib=kv_memory,
            share_prefixes=share_prefixes,
            first_token_s=target_ttft,
            max_sessions=max_sessions,
            max_length=max_length,
            grace_s=grace,
            threads=threads,
            offline=offline,
            allow_inexact=allow_inexact,
            reflection=reflection,
            drain_s=drain,
        )
    )


@app.command()
def bench(
    model: Annotated[
        str,
        typer.Option(
            help="Name, Hugging Face repo, or local folder or GGUF file of the target.", envvar="ACESPEC_MODEL"
        ),
    ] = "smollm2-135m",
    backend: Annotated[
        str, typer.Option(help="'torch' measures the model; 'replay' measures a replay of --profile: a self-test.")
    ] = "torch",
    device: DeviceOption = "auto",
    profile: Annotated[str, typer.Option(help="Replay: whose times.")] = "h100-8b",
    threads: Annotated[int, typer.Option(help="CPU threads of the model.", envvar="ACESPEC_THREADS", min=1)] = 1,
    rows: Annotated[str | None, typer.Option(help="Rows of a step, over all its sessions. [1,2,4,8,16,32,64]")] = None,
    sessions: Annotated[str | None, typer.Option(help="Sessions that share the rows. [1,2,8]")] = None,
    context: Annotated[str | None, typer.Option(help="Positions that each session looks back on. [64,512]")] = None,
    repeats: Annotated[int | None, typer.Option(help="Times that each point is measured. [5]", min=1)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller grid, for a first look.")] = False,
    out: Annotated[Path | None, typer.Option(help="Save the timing profile here (JSON).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Fetch nothing.", envvar="ACESPEC_OFFLINE")] = False,
) -> None:
    """Measure how long steps take here, by rows, sessions and context; about a minute for the default model."""
    from acespec.cloud import bench_command as command

    if backend not in BACKENDS:
        raise UsageError(f"--backend {backend}: choose one of {', '.join(BACKENDS)}")
    command.bench(
        command.BenchSettings(
            model=model,
            backend=backend,
            device=_device(device),
            profile=profile,
            threads=threads,
            rows=command.numbers("--rows", rows or (command.QUICK_ROWS if quick else command.ROWS)),
            sessions=command.numbers("--sessions", sessions or (command.QUICK_SESSIONS if quick else command.SESSIONS)),
            contexts=command.numbers("--context", context or (command.QUICK_CONTEXTS if quick else command.CONTEXTS)),
            repeats=repeats or (command.QUICK_REPEATS if quick else command.REPEATS),
            out=out,
            as_json=as_json,
            offline=offline,
        )
    )


def _device(text: str) -> Device:
    from acespec.cloud.device import Device

    if text not in list(Device):
        raise UsageError(f"--device {text}: choose one of {', '.join(Device)}")
    return Device(text)


def _rows(text: str) -> int | None:
    """The row budget; None for `auto`."""
    if text == "auto":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--max-rows {text}: give a whole number from 1 on, or auto")
    return int(text)


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    sys.stdout.write(f"acespec-verifier {installed('acespec')}\n")
    logging.getLogger(__name__).debug("python %s", sys.version)


def main() -> None:
    """Entry point of `acespec-verifier`."""
    # gRPC's core logs to stderr by itself and has no other switch; what matters reaches us as an error.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    run(app)


if __name__ == "__main__":
    main()
