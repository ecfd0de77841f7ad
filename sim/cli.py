"""`acespec-sim`: run the shaped link, list the presets, record traces. Heavy modules load only when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from acespec.proto.command_line import ConfigOption, LogLevelOption, run, start_logging

app = typer.Typer(
    help="Shape and simulate the narrow link between edge and cloud.",
    no_args_is_help=True,
    add_completion=True,
    context_settings={"auto_envvar_prefix": "ACESPEC_SIM", "help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@app.callback()
def root(config: ConfigOption = None, log_level: LogLevelOption = "warning") -> None:
    """Shape and simulate the narrow link between edge and cloud."""
    start_logging(log_level)


@app.command()
def link(
    listen: Annotated[str, typer.Option(help="HOST:PORT that the edge connects to; port 0 picks a free one.")],
    to: Annotated[str, typer.Option(help="HOST:PORT of the verifier.")],
    preset: Annotated[str, typer.Option(help="Named link; `acespec-sim presets` lists them.")] = "wan50",
    rate_up_kbps: Annotated[float | None, typer.Option(help="Edge to cloud, 1000 bit/s of IP bytes.")] = None,
    rate_down_kbps: Annotated[float | None, typer.Option(help="Cloud to edge.")] = None,
    delay_ms: Annotated[float | None, typer.Option(help="One-way propagation delay.")] = None,
    jitter_ms: Annotated[
        float | None, typer.Option(help="Standard deviation of the extra one-way delay (exponential).")
    ] = None,
    loss_percent: Annotated[
        float | None, typer.Option(help="Packets lost, independently; seen as stalls of the stream.")
    ] = None,
    queue_bytes: Annotated[
        int | None, typer.Option(help="Bytes that may wait per direction before senders are blocked.")
    ] = None,
    mtu: Annotated[int | None, typer.Option(help="Largest packet, headers included.")] = None,
    outage: Annotated[
        list[str] | None,
        typer.Option(help="START:DURATION in seconds from `ready`; nothing is carried. Repeat at will."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of jitter and loss.")] = 0,
    log: Annotated[Path | None, typer.Option(help="Write one JSON line per packet to this file.")] = None,
    json_: Annotated[
        bool, typer.Option("--json", envvar="ACESPEC_SIM_LINK_JSON", help="Print a JSON summary on stdout at the end.")
    ] = False,
) -> None:
    """Run a TCP proxy that behaves like a narrow link, until SIGINT or SIGTERM.

    All connections share one link: a serialiser at the rate, then delay and jitter. IP and TCP headers, ACKs and
    handshakes are counted by a model (IPv4, timestamps). A full queue blocks the sender instead of dropping. Not
    modelled: TCP's congestion control and its slow restart after an outage.
    """
    from acespec.sim.run_link import LinkOptions, run_link

    options = LinkOptions(
        preset=preset,
        rate_up_kbps=rate_up_kbps,
        rate_down_kbps=rate_down_kbps,
        delay_ms=delay_ms,
        jitter_ms=jitter_ms,
        loss_percent=loss_percent,
        queue_bytes=queue_bytes,
        mtu=mtu,
        outages=tuple(outage or ()),
        seed=seed,
    )
    report = run_link(options, listen=listen, to=to, log=log)
    typer.echo(report.line(), err=True)
    if json_:
        typer.echo(report.json())


@app.command()
def presets(
    json_: Annotated[bool, typer.Option("--json", help="Print the full specs as JSON.")] = False,
) -> None:
    """List the link presets. All are approximate; the source is printed beside each."""
    from acespec.sim.preset_table import presets_json, presets_text

    typer.echo(presets_json() if json_ else presets_text())


@app.command()
def record(
    target: Annotated[str, typer.Option(help="The target model: a .gguf file, a known name, or a folder.")],
    drafter: Annotated[str, typer.Option(help="The draft model; its tokenizer must be the target's.")],
    prompts: Annotated[
        list[str],
        typer.Option(
            help="humaneval, gsm8k, mtbench, or a file of JSON lines as Spec-Bench's; with :N the first N of each "
            "category. Repeat at will."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write; .jsonl.zst by custom.")],
    temp: Annotated[
        list[float] | None, typer.Option("--temp", min=0.0, help="Temperature; repeat for several. Default: 0.")
    ] = None,
    target_runtime: Annotated[str, typer.Option(help="gguf, torch or mlx.")] = "gguf",
    drafter_runtime: Annotated[str, typer.Option(help="gguf, torch or mlx.")] = "gguf",
    max_tokens: Annotated[int, typer.Option("--max-tokens", "-m", min=1, help="Most tokens of an answer.")] = 96,
    max_kv_size: Annotated[int, typer.Option(min=16, help="Longest prompt and answer, in tokens.")] = 2048,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise that both models share.")] = 1,
    offline: Annotated[bool, typer.Option("--offline", help="Fetch nothing.")] = False,
) -> None:
    """Record what a drafter thinks of each token that a target says, over real prompts.

    Each position holds the target's id, its rank in the drafter's list, and the drafter's best guesses with their
    probabilities and margins. `acespec-verifier --backend replay`, `--drafter replay` and the simulator read the file.
    """
    from acespec.sim.record_run import RecordOptions, record_to

    options = RecordOptions(
        target=target,
        drafter=drafter,
        prompts=tuple(prompts),
        temperatures=tuple(temp or (0.0,)),
        target_runtime=target_runtime,
        drafter_runtime=drafter_runtime,
        max_tokens=max_tokens,
        max_kv=max_kv_size,
        seed=seed,
        offline=offline,
    )
    record_to(out, options, lambda line: typer.echo(line, err=True))


def main() -> None:
    """Entry point of `acespec-sim`."""
    run(app)


if __name__ == "__main__":
    main()
