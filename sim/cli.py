"""`acespec-sim`: run the shaped link, list the presets. Heavy modules load only when a command runs."""

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


def main() -> None:
    """Entry point of `acespec-sim`."""
    run(app)


if __name__ == "__main__":
    main()
