"""How often a real drafter's guess is the real target's token: by temperature, by siblings, by kind of text.

Reads the recorded traces of the Qwen2.5-Coder pair (0.5B drafting for 1.5B, both 4-bit in llama.cpp on a CPU), or
records them first. A token counts as accepted by a chain if the drafter's first guess is it, and by k siblings if one
of the first k is. `one-hot` is a drafter that ignores the shared noise and proposes its likeliest token; `optimal` is
what rejection sampling would accept on average, the sum of min(p, q).

    python -m acespec.bench.acceptance                     table from the committed traces
    python -m acespec.bench.acceptance --record            fetch the pair and the prompts, record, then the table
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acespec.bench.real_pair import DRAFTER, TARGET, fetch_part_file
from acespec.models.progress import terminal_report
from acespec.proto.errors import AcespecError
from acespec.sim.record_run import RecordOptions, record_to
from acespec.sim.trace_file import Trace, read_traces

TRACES = Path("docs/traces/qwen2.5-coder-0.5b-for-1.5b.jsonl.zst")
PROMPTS = ("humaneval:4", "gsm8k:3", "mtbench:1")
TEMPERATURES = (0.0, 0.7, 1.0)
SIBLINGS = (1, 2, 4, 8)
DRAFT_LENGTHS = (2, 4, 8, 16)
RESAMPLES = 2000

EARLIER = """Earlier measurements of this pair, for comparison (other prompts of the same sets, or few positions):
  greedy, 15 prompts x 96: agreement HumanEval .995, GSM8K .903, MT-Bench .771, all .867;
    tokens a round at D = 2/4/8/16: HumanEval 2.98 4.80 8.35 15.4, GSM8K 2.71 3.89 5.65 7.78,
    MT-Bench 2.31 3.03 3.69 4.03, all 2.56 3.60 4.87 5.97
  T = 0.7, about 100 positions a text (optimal, shared noise, top-2, top-4, one-hot):
    code .928 .925 .983 .997 .903, explanation .824 .809 .910 .960 .774, word problem .872 .864 .938 .974 .838
  T = 1.0: code .937 .932 .981 .997 .896, explanation .810 .793 .890 .947 .741
"""


def record(out: Path, max_tokens: int, tell: Callable[[str], None]) -> None:
    """Fetch what is missing and record the pair on all prompts at all temperatures."""
    with terminal_report() as report:
        target, drafter = fetch_part_file(TARGET, report), fetch_part_file(DRAFTER, report)
    options = RecordOptions(str(target), str(drafter), PROMPTS, TEMPERATURES, max_tokens=max_tokens)
    record_to(out, options, tell)


def figures(traces: Sequence[Trace]) -> dict[str, Any]:
    """Acceptance per token over all positions of `traces`; the interval is of the chain, by resampling prompts."""
    ranks = np.concatenate([trace.ranks for trace in traces])
    overlaps = np.concatenate([trace.overlaps for trace in traces])
    likeliest = np.concatenate([trace.likeliest for trace in traces])
    chain = float((ranks == 0).mean())
    return {
        "prompts": len(traces),
        "tokens": len(ranks),
        "siblings": {k: float((ranks < k).mean()) for k in SIBLINGS},
        "interval95": interval([np.asarray(trace.ranks) == 0 for trace in traces]),
        "one_hot": float(likeliest.mean()),
        "optimal": float(overlaps.mean()),
        "of_optimal": chain / float(overlaps.mean()),
        "tokens_per_round": {d: tokens_per_round(traces, d) for d in DRAFT_LENGTHS},
    }


def interval(hits: Sequence[NDArray[np.bool_]]) -> tuple[float, float]:
    """95 % interval of the mean over all tokens, by resampling prompts: the tokens of one text are not independent."""
    right, length = np.array([h.sum() for h in hits]), np.array([h.size for h in hits])
    draws = np.random.default_rng(0).integers(0, len(hits), (RESAMPLES, len(hits)))
    means = right[draws].sum(1) / length[draws].sum(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def tokens_per_round(traces: Iterable[Trace], length: int) -> float:
    """Accepted tokens + 1 for each verification of a chain of `length`, from one end of each text to the other."""
    tokens = rounds = 0
    for trace in traces:
        hits = [rank == 0 for rank in trace.ranks]
        at = 0
        while at < len(hits):
            accepted = 0
            while accepted < length and at + accepted < len(hits) and hits[at + accepted]:
                accepted += 1
            at += accepted + 1
            rounds += 1
        tokens += len(hits)
    return tokens / rounds


def groups(traces: Sequence[Trace]) -> dict[str, list[Trace]]:
    """Each set, followed by its categories if it has several; then all."""
    found: dict[str, list[Trace]] = {}
    for prompt_set in dict.fromkeys(trace.source.prompt_set for trace in traces):
        inside = found[prompt_set] = [trace for trace in traces if trace.source.prompt_set == prompt_set]
        kinds = sorted({trace.source.category for trace in inside})
        for kind in kinds if len(kinds) > 1 else ():
            found[f"  {kind}"] = [trace for trace in inside if trace.source.category == kind]
    return found | {"all": list(traces)}


def table(traces: Sequence[Trace]) -> str:
    """The whole table as text."""
    lines: list[str] = []
    for temperature in sorted({trace.source.temperature for trace in traces}):
        chosen = [trace for trace in traces if trace.source.temperature == temperature]
        lines += [
            f"T = {temperature:g}",
            f"  {'prompts':14}{'tokens':>7}{'chain':>7}{'95 %':>14}{'top-2':>7}{'top-4':>7}{'top-8':>7}"
            f"{'one-hot':>9}{'optimal':>9}   tokens a round at D = {', '.join(map(str, DRAFT_LENGTHS))}",
        ]
        lines += [_line(name, figures(group)) for name, group in groups(chosen).items()]
    return "\n".join(lines)


def _line(name: str, f: dict[str, Any]) -> str:
    low, high = f["interval95"]
    spread = f"{low:.3f}-{high:.3f}" if f["prompts"] > 2 else ""
    chain, *wider = (f"{value:7.3f}" for value in f["siblings"].values())
    rounds = " ".join(f"{value:5.2f}" for value in f["tokens_per_round"].values())
    return (
        f"  {name:14}{f['tokens']:7d}{chain}{spread:>14}{''.join(wider)}{f['one_hot']:9.3f}{f['optimal']:9.3f}   "
        f"{rounds}"
    )


def as_json(traces: Sequence[Trace]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [
        {"temperature": temperature, "group": name.strip(), **figures(group)}
        for temperature in sorted({trace.source.temperature for trace in traces})
        for name, group in groups([t for t in traces if t.source.temperature == temperature]).items()
    ]


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="?", type=Path, default=TRACES, help=f"default: {TRACES}")
    parser.add_argument("--record", action="store_true", help="record the traces anew (about 15 minutes on one core)")
    parser.add_argument("--tokens", type=int, default=96, help="with --record: most tokens of an answer")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    try:
        if args.record:
            record(args.traces, args.tokens, lambda line: print(line, file=sys.stderr, flush=True))  # noqa: T201
        traces = read_traces(args.traces)
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    source = traces[0].source
    sys.stdout.write(f"{source.drafter} drafting for {source.target}\n{table(traces)}\n\n{EARLIER}")
    if args.json:
        args.json.write_text(json.dumps(as_json(traces), indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
