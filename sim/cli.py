"""`acespec-sim`: shape links, run worlds in virtual time, record traces. Heavy modules load when a command runs."""

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
    preset: Annotated[
        str | None,
        typer.Option(help="Named link; `acespec-sim presets` lists them. Default: wan50.", show_default=False),
    ] = None,
    link_file: Annotated[
        Path | None, typer.Option("--link", help="Own link: a TOML file of fields, instead of a preset.")
    ] = None,
    rate_up_kbps: Annotated[float | None, typer.Option(help="Edge to cloud, 1000 bit/s of IP bytes.")] = None,
    rate_down_kbps: Annotated[float | None, typer.Option(help="Cloud to edge.")] = None,
    rate_trace_up: Annotated[
        Path | None, typer.Option(help="Rate over time, repeated: a Mahimahi trace, or lines of t,kbps.")
    ] = None,
    rate_trace_down: Annotated[Path | None, typer.Option(help="The same, cloud to edge.")] = None,
    scale_to_kbps: Annotated[float | None, typer.Option(help="Scale the traces to this mean rate.")] = None,
    delay_ms: Annotated[float | None, typer.Option(help="One-way propagation delay.")] = None,
    jitter_ms: Annotated[
        float | None, typer.Option(help="Standard deviation of the extra one-way delay (exponential).")
    ] = None,
    loss_percent: Annotated[
        float | None, typer.Option(help="Packets lost, independently; seen as stalls of the stream.")
    ] = None,
    loss_model: Annotated[
        str | None,
        typer.Option(help="iid:PERCENT, or ge:P:R[:LOSS_BAD[:LOSS_GOOD]] for losses in bursts (Gilbert-Elliott)."),
    ] = None,
    queue_bytes: Annotated[
        int | None, typer.Option(help="Bytes that may wait per direction before senders are blocked.")
    ] = None,
    mtu: Annotated[int | None, typer.Option(help="Largest packet, headers included.")] = None,
    outage: Annotated[
        list[str] | None,
        typer.Option(help="START:DURATION in seconds from `ready`; nothing is carried. Repeat at will."),
    ] = None,
    on_off: Annotated[
        str | None, typer.Option(help="MEAN_UP:MEAN_DOWN in seconds: outages at random, besides those given.")
    ] = None,
    police: Annotated[
        bool, typer.Option("--police", help="Drop what exceeds the rate and a burst, instead of queueing it.")
    ] = False,
    burst_bytes: Annotated[int | None, typer.Option(help="Burst that a policer lets pass.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of all that is random. Default: 0.", show_default=False)
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Write one JSON line per packet to this file.")] = None,
    status: Annotated[
        bool | None,
        typer.Option(
            "--status/--no-status",
            help="Live line on stderr, twice a second. Default: if that is a terminal.",
            show_default=False,
        ),
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", envvar="ACESPEC_SIM_LINK_JSON", help="Print a JSON summary on stdout at the end.")
    ] = False,
) -> None:
    """Run a TCP proxy that behaves like a narrow link, until SIGINT or SIGTERM.

    All connections share one link: a serialiser at the rate, then delay and jitter. IP and TCP headers, ACKs and
    handshakes are counted by a model (IPv4, timestamps). A full queue blocks the sender instead of dropping. Not
    modelled: TCP's congestion control.
    """
    from acespec.sim.link_options import LinkOptions
    from acespec.sim.run_link import run_link

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
        link_file=link_file,
        rate_trace_up=rate_trace_up,
        rate_trace_down=rate_trace_down,
        scale_to_kbps=scale_to_kbps,
        loss_model=loss_model,
        on_off=on_off,
        police=police,
        burst_bytes=burst_bytes,
    )
    report = run_link(options, listen=listen, to=to, log=log, status=status)
    typer.echo(report.line(), err=True)
    if json_:
        typer.echo(report.json())


@app.command("link-check")
def link_check(
    log: Annotated[Path, typer.Argument(help="A packet log, as `acespec-sim link --log` writes it.")],
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Prove from a packet log that the link kept its rate, order, delay and queue bound. Status 1 if it did not.

    The log is replayed against the link in its header: the rate over every window (for a trace: its integral), the
    turn and time of each packet on the line, what waited, what was refused. The first violation is named by its line.
    """
    import json

    from acespec.sim.link_check import check_log

    report = check_log(log)
    typer.echo(json.dumps(report.as_json()) if json_ else report.line())
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def tun(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND...", help="What to run at the edge. Without: hold the link until Ctrl-C."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Named link; `acespec-sim presets` lists them. Default: wan50.")
    ] = None,
    link_file: Annotated[
        Path | None, typer.Option("--link", help="Own link: a TOML file of fields, instead of a preset.")
    ] = None,
    queue_bytes: Annotated[int | None, typer.Option(help="Bytes that may wait per direction; more is dropped.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all that is random. Default: 0.")] = None,
    cloud_cmd: Annotated[str | None, typer.Option(help="What to run in the cloud, in one string.")] = None,
    cloud_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Start COMMAND once the cloud listens on this TCP port.")
    ] = None,
    log: Annotated[Path | None, typer.Option(help="Write one JSON line per packet to this file.")] = None,
    status: Annotated[
        bool | None, typer.Option("--status/--no-status", help="Live line on stderr. Default: without COMMAND.")
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", envvar="ACESPEC_SIM_TUN_JSON", help="Print a JSON summary on stdout at the end.")
    ] = False,
) -> None:
    """Run programs over a narrow link for real packets, between two network namespaces. Linux, root, iproute2.

    The edge is 10.77.0.1, the cloud 10.77.0.2. Any protocol; TCP is the kernel's own. A full queue drops packets. The
    exit status is that of COMMAND. Namespaces and devices are removed at the end.
    """
    from acespec.sim.link_options import LinkOptions
    from acespec.sim.run_tun import TunOptions, run_tun

    options = LinkOptions(preset=preset, link_file=link_file, queue_bytes=queue_bytes, seed=seed)
    report = run_tun(TunOptions(options, tuple(command or ()), cloud_cmd, cloud_port, log, status))
    typer.echo(report.line(), err=True)
    if json_:
        typer.echo(report.json())
    raise typer.Exit(report.exit_code)


@app.command()
def tc(
    dev: Annotated[str, typer.Option(help="The network device that leads to the other side.")],
    preset: Annotated[
        str | None, typer.Option(help="Named link; `acespec-sim presets` lists them. Default: wan50.")
    ] = None,
    link_file: Annotated[
        Path | None, typer.Option("--link", help="Own link: a TOML file of fields, instead of a preset.")
    ] = None,
    cloud: Annotated[bool, typer.Option("--cloud", help="This machine is the cloud: `down` leaves on it.")] = False,
    packet_bytes: Annotated[
        int | None, typer.Option(min=64, help="Packet size by which queue bytes become packets. Default: the MTU.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Carry the commands out, not only print them.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Undo them.")] = False,
) -> None:
    """Print a link as `tc` commands for the kernel's netem, both ways on one device; or apply or remove them.

    What tc cannot express, or this kernel lacks, is said on stderr.
    """
    from acespec.sim.link_options import LinkOptions
    from acespec.sim.run_tc import run_tc, tc_notes
    from acespec.sim.tc import Shaping, frame_header

    spec = LinkOptions(preset=preset, link_file=link_file).spec()
    shaping = Shaping(spec, dev, "cloud" if cloud else "edge", frame_header(dev), packet_bytes)
    typer.echo(run_tc(shaping, apply=apply, remove=remove))
    if not (apply or remove):
        typer.echo("\n".join(f"# {note}" for note in tc_notes(shaping)), err=True)


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


@app.command("run")
def run_(
    scenario: Annotated[Path, typer.Argument(help="A scenario as TOML; see docs/simulator.md and scenarios/.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE on top of the file, such as link.kbps=20. Repeat at will."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the result to this file (JSON).")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="On the live stack, in real time: strategies plain and ours only.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="With --live: in virtual time first, and both side by side.")
    ] = False,
) -> None:
    """Run a scenario: edges, their links and one verifier, in virtual time.

    The same scenario, seed and version give the same digest of events everywhere. With --live a replaying verifier, a
    link process and a real client for each edge do the same over gRPC.
    """
    from acespec.sim.run_command import RunOptions, run_command

    typer.echo(run_command(RunOptions(scenario, tuple(set_ or ()), out, json_, live, compare)))


@app.command()
def sweep(
    sweep: Annotated[Path, typer.Argument(help="A scenario with a table [sweep] of what varies.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE on top of every cell's scenario. Repeat at will.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Processes. Default: one a core.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the results. Default: named for the file.", show_default=False),
    ] = None,
) -> None:
    """Run every cell of a sweep, in several processes.

    Cells that the folder holds already are kept, so that the same command goes on where Ctrl-C stopped it. Status 1 if
    cells failed; they are named.
    """
    import sys

    from acespec.sim.sweep_command import SweepOptions, sweep_command

    options = SweepOptions(sweep, tuple(set_ or ()), jobs, out, ("acespec-sim", *sys.argv[1:]))
    typer.echo(sweep_command(options))


@app.command()
def plot(
    folder: Annotated[Path, typer.Argument(help="The folder of a sweep.")],
    x: Annotated[
        str | None, typer.Option("--x", help="rtt, kbps, load, or an axis of the sweep. Default: what varied.")
    ] = None,
    y: Annotated[
        str | None, typer.Option("--y", help="A figure of the results, or gain. Default: the usual pictures.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="The axis that tells lines apart. Default: the strategies'.")
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="png or svg.")] = "png",
) -> None:
    """Draw a sweep into its folder plots/; without options, every picture that has something to show."""
    from acespec.sim.plot_command import PlotOptions, plot_command

    typer.echo(plot_command(PlotOptions(folder, x, y, by, format_)))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a sweep.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Default: report.html in the folder.", show_default=False)
    ] = None,
) -> None:
    """Write one HTML file about a sweep: in words, tables and pictures. It needs nothing else to be shown."""
    from acespec.sim.report_command import ReportOptions, report_command

    typer.echo(report_command(ReportOptions(folder, out)))


def main() -> None:
    """Entry point of `acespec-sim`."""
    run(app)


if __name__ == "__main__":
    main()
