"""The demo: the same prompts twice over an enforced 50 Kbps link, plain and drafted, side by side.

Exit status 1 if the two texts differ in any id, or if the link carried more than its rate in any second.
`DEMO_JSON=file` writes the table as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from acespec.bench.prompts import PROMPTS
from acespec.bench.stack import NGRAM, PLAIN, Cost, Link, Stack, cost_of
from acespec.edge.completion import Completion
from acespec.models.store import resolve
from acespec.proto.errors import AcespecError
from acespec.sim.log_check import LinkSummary
from acespec.sim.processes import ProcessFailed
from acespec.sim.spec import LinkSpec

MODEL = "smollm2-135m"
PRESET = "wan50"
TOKENS = int(os.environ.get("DEMO_TOKENS", "64"))
MODES = (PLAIN, NGRAM)

console = Console(highlight=False)
if console.width < 100:
    console = Console(highlight=False, width=100)


async def run_prompts(stack: Stack, links: dict[str, Link]) -> dict[str, list[Completion]]:
    """Every prompt in every mode, text streaming to the terminal."""
    request = stack.request(TOKENS)
    runs: dict[str, list[Completion]] = {mode.name: [] for mode in MODES}
    for number, prompt in enumerate(PROMPTS, 1):
        console.print(f"\n[bold]Prompt {number} of {len(PROMPTS)}:[/bold] {prompt}")
        for mode in MODES:
            console.print(f"\n[dim]{mode.name}, over {PRESET}:[/dim]")
            async with stack.client(links[mode.name].address, mode) as client:
                done = await stack.generate(client, prompt, request, show=_show)
            runs[mode.name].append(done)
            console.print(f"\n[dim]{len(done.token_ids)} tokens in {done.total_s:.1f} s[/dim]")
    return runs


def reference(folder: Path) -> dict[str, float]:
    """transformers' own plain decoding of the first prompt, in a process of its own, without any link."""
    console.print("\n[dim]Measuring transformers: same model, one thread, no link ...[/dim]")
    command = [sys.executable, "-m", "acespec.bench.reference_speed", str(folder), PROMPTS[0], "48"]
    done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise ProcessFailed(f"the transformers measurement failed: {done.stderr.decode(errors='replace')[-300:]}")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def report(runs: dict[str, list[Completion]], links: dict[str, LinkSummary], peer: dict[str, float]) -> dict[str, Any]:
    """Everything the table shows, as plain data."""
    spec = LinkSpec.preset(PRESET)
    costs = {name: cost_of(done) for name, done in runs.items()}
    same = [a.token_ids == b.token_ids for a, b in zip(runs["plain"], runs["ngram"], strict=True)]
    return {
        "identical": all(same),
        "rate_ok": all(summary.rate_ok(spec) for summary in links.values()),
        "link_rate_kbps": spec.rate_down_kbps,
        "speedup": costs["ngram"].tokens_per_s / costs["plain"].tokens_per_s,
        "model": MODEL,
        "preset": PRESET,
        "prompts": len(PROMPTS),
        "identical_per_prompt": same,
        "modes": {name: cost.as_json() | {"link": links[name].as_json()} for name, cost in costs.items()},
        "transformers_plain": peer,
        "exact": all(done.terms.exact for done in runs["plain"]),
        "numerics_id": runs["plain"][0].terms.numerics_id,
    }


def show_table(data: dict[str, Any], costs: dict[str, Cost], links: dict[str, LinkSummary]) -> None:
    """Print the table for a person."""
    table = Table(
        title=f"{MODEL} over {PRESET}: {data['prompts']} prompts, {TOKENS} tokens each, greedy", title_justify="left"
    )
    table.add_column("")
    for name in costs:
        table.add_column(name, justify="right")
    table.add_column("transformers, no link", justify="right")
    peer = data["transformers_plain"]

    def row(title: str, cell: Any, last: str = "") -> None:
        table.add_row(title, *(cell(name) for name in costs), last)

    row("tokens/s", lambda n: f"{costs[n].tokens_per_s:.2f}", f"{peer['tokens_per_s']:.2f}")
    row("time to first token, s", lambda n: f"{costs[n].ttft_s:.2f}", f"{peer['ttft_s']:.2f}")
    row("acceptance length (bonus not counted)", lambda n: f"{costs[n].acceptance_length:.2f}")
    row("mean draft length", lambda n: f"{costs[n].drafted / costs[n].steps:.2f}")
    row("verify steps per token", lambda n: f"{costs[n].steps / costs[n].tokens:.2f}")
    row("verifier ms per token", lambda n: f"{1000 * costs[n].verify_s / costs[n].tokens:.0f}")
    row("bytes up per token: payload / on the link", lambda n: _bytes(costs[n], links[n].up_wire, costs[n].up_payload))
    row(
        "bytes down per token: payload / on the link",
        lambda n: _bytes(costs[n], links[n].down_wire, costs[n].down_payload),
    )
    row("most Kbps in any second, up", lambda n: f"{links[n].up_peak_kbps_1s:.1f}")
    row("most Kbps in any second, down", lambda n: f"{links[n].down_peak_kbps_1s:.1f}")
    console.print()
    console.print(table)
    console.print(
        "Link: IP bytes as the shaper booked them, with headers, acknowledgements and connection set-up.\n"
        "transformers: its own generate(), the same model, one row a step, one thread, no link."
    )
    console.print(f"ids identical: {'yes' if data['identical'] else '[bold red]NO[/bold red]'}   ", end="")
    console.print(
        f"link within {data['link_rate_kbps']:g} Kbps: {'yes' if data['rate_ok'] else '[bold red]NO[/bold red]'}   ",
        end="",
    )
    console.print(f"drafted against plain: {data['speedup']:.2f}x")


def main() -> int:
    """Entry point of `make demo`; the exit status."""
    began = time.monotonic()
    try:
        folder = resolve(MODEL)
        console.print(f"[dim]Starting a verifier for {MODEL} on loopback, and a {PRESET} link before it ...[/dim]")
        with (
            Stack.running(MODEL) as stack,
            stack.link(PRESET, "plain") as plain,
            stack.link(PRESET, "ngram") as drafted,
        ):
            links = {"plain": plain, "ngram": drafted}
            runs = asyncio.run(run_prompts(stack, links))
            summaries = {name: link.summary() for name, link in links.items()}
        peer = reference(folder)
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    data = report(runs, summaries, peer)
    show_table(data, {name: cost_of(done) for name, done in runs.items()}, summaries)
    console.print(f"[dim]{time.monotonic() - began:.0f} s in all[/dim]")
    if target := os.environ.get("DEMO_JSON"):
        Path(target).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return 0 if data["identical"] and data["rate_ok"] else 1


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _verdict(good: bool) -> str:
    return "yes" if good else "[bold red]NO[/bold red]"


def _bytes(cost: Cost, on_link: int, payload: int) -> str:
    return f"{payload / cost.tokens:.1f} / {on_link / cost.tokens:.1f}"


if __name__ == "__main__":
    sys.exit(main())
