"""What shipping 1, 2, 4 or 8 guesses for each place buys, and what it costs, by link rate.

Coverage is the share of wrong first guesses whose right token had been sent beside them: such a rejection costs no
round trip. kappa = a + (1 - a) coverage, the chance that the next token of the target is among the nodes that were
shipped (theory.md, form 8). The verifier charges rows by its profile, so wide drafts pay in tokens/s or do not.

`fixed:8` ships every guess that it has, so it shows what a width is worth in itself; `rate`, the default controller,
leaves out those that do not pay, and the default width follows from how it does.

    python -m acespec.bench.brain siblings --json siblings.json
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from acespec.bench.brain.study import Setting, add_common, as_data, run_all, run_setting, table, write_json
from acespec.edge.drafters.replay_accuracy import DepthAccuracy, RecordedAccuracy, read_accuracy

WIDTHS = (1, 2, 4, 8)
KBPS = (10.0, 50.0, 250.0)
RTTS_MS = (30.0, 100.0, 300.0)
ACCEPTANCES = ("0.65", "0.8", "0.9", "prose")
DRAFTS = ("rate", "fixed:8")
POLICIES = (("always", 0.0), ("idle", 20.0), ("never", 20.0))
LEVEL = 0.01
"""A wider draft must be faster, or cheaper, by more than this share to be preferred."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """One run. Bytes are IP bytes upwards; rows count a step's own row, too."""

    draft: str
    width: int
    kbps: float
    rtt_ms: float
    acceptance: str
    policy: str
    rate: float
    coverage: float
    kappa: float
    up_bytes: float
    tokens_per_s: float
    rows: float
    steps: float
    on_schedule: float


@dataclass(frozen=True, slots=True)
class Summary:
    """Geometric means of a width over round trips and acceptances, speed and steps relative to a chain's."""

    draft: str
    width: int
    kbps: float
    policy: str
    coverage: float
    kappa: float
    up_bytes: float
    speed: float
    worst_speed: float
    steps: float
    rows: float


def measure(setting: Setting) -> Shipped:
    """Run it."""
    result = run_setting(setting)
    width = int(setting.tree.partition(":")[2])
    done = [edge.drafting for edge in result.edges]
    surprises, shipped = sum(d.surprises for d in done), sum(d.shipped for d in done)
    coverage = shipped / surprises if surprises else 0.0
    a = first_right(setting)
    return Shipped(
        draft=setting.draft,
        width=width,
        kbps=setting.kbps,
        rtt_ms=setting.rtt_ms,
        acceptance=setting.acceptance,
        policy=setting.free_run,
        rate=setting.rate,
        coverage=coverage,
        kappa=a + (1 - a) * coverage,
        up_bytes=result.up_bytes_per_token,
        tokens_per_s=result.tokens_per_s.mean,
        rows=sum(edge.steps + edge.verified for edge in result.edges) / result.tokens,
        steps=result.steps_per_token,
        on_schedule=result.on_schedule,
    )


def first_right(setting: Setting) -> float:
    """Share of first guesses that are right."""
    accuracy, _ = read_accuracy(setting.scenario().drafter.acceptance)
    if isinstance(accuracy, DepthAccuracy):
        return accuracy.chances[0]
    ranks = [r for each in accuracy.recordings for r in each.ranks] if isinstance(accuracy, RecordedAccuracy) else []
    return ranks.count(0) / len(ranks) if ranks else 0.0


def summaries(runs: Iterable[Shipped]) -> list[Summary]:
    """By controller, policy, rate and width."""
    groups: dict[tuple[str, str, float], dict[int, list[Shipped]]] = {}
    for run_ in runs:
        groups.setdefault((run_.draft, run_.policy, run_.kbps), {}).setdefault(run_.width, []).append(run_)
    return [_summary(of_width, widths[min(widths)]) for widths in groups.values() for of_width in widths.values()]


def _summary(runs: Sequence[Shipped], narrowest: Sequence[Shipped]) -> Summary:
    speeds = [run_.tokens_per_s / chain.tokens_per_s for run_, chain in zip(runs, narrowest, strict=True)]
    return Summary(
        draft=runs[0].draft,
        width=runs[0].width,
        kbps=runs[0].kbps,
        policy=runs[0].policy,
        coverage=sum(r.coverage for r in runs) / len(runs),
        kappa=sum(r.kappa for r in runs) / len(runs),
        up_bytes=_geometric([r.up_bytes for r in runs]),
        speed=_geometric(speeds),
        worst_speed=min(speeds),
        steps=_geometric([r.steps / chain.steps for r, chain in zip(runs, narrowest, strict=True)]),
        rows=_geometric([r.rows for r in runs]),
    )


def worth(summary: Summary) -> float:
    """What an operator has of a width: speed where the verifier is free, fewer steps where it is not."""
    return 1 / summary.steps if summary.policy == "never" else summary.speed


def best_width(found: Sequence[Summary]) -> int:
    """The narrowest width that no other beats by more than LEVEL, all of `found` together."""
    widths = sorted({each.width for each in found})
    worths = {width: _geometric([worth(each) for each in found if each.width == width]) for width in widths}
    return next(width for width in widths if worths[width] * (1 + LEVEL) >= max(worths.values()))


def report(found: Sequence[Summary]) -> str:
    """A table for each controller and policy, and the default that follows."""
    head = ("Kbps", "siblings", "coverage", "kappa", "up B/tok", "speed", "worst", "steps", "rows/tok")
    text = ""
    for draft, policy in dict.fromkeys((each.draft, each.policy) for each in found):
        own = [each for each in found if (each.draft, each.policy) == (draft, policy)]
        rows = [
            (f"{s.kbps:g}", s.width, f"{s.coverage:.1%}", f"{s.kappa:.3f}", f"{s.up_bytes:.1f}", f"{s.speed:.3f}",
             f"{s.worst_speed:.3f}", f"{s.steps:.3f}", f"{s.rows:.2f}")
            for s in own
        ]  # fmt: skip
        text += f"{draft}, free run {policy}; speed and steps over those of a chain\n{table(head, rows)}"
        text += f"narrowest that nothing beats by {LEVEL:.0%}: siblings:{best_width(own)}\n\n"
    default = best_width([each for each in found if each.draft == found[0].draft])
    return f"{text}default that follows, all policies and rates of {found[0].draft} together: siblings:{default}\n"


def _geometric(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(max(value, 1e-9)) for value in values) / len(values))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options."""
    add_common(parser)
    parser.add_argument("--width", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--kbps", type=float, nargs="+", default=KBPS)
    parser.add_argument("--rtt", type=float, nargs="+", default=RTTS_MS, metavar="MS")
    parser.add_argument("--acceptance", nargs="+", default=ACCEPTANCES)
    parser.add_argument("--draft", nargs="+", default=DRAFTS, help="controllers; the default follows from the first")
    parser.add_argument("--profile", default="h100-70b-fp8", help="of the verifier")
    parser.add_argument("--tokens", type=int, default=200)


def run(args: argparse.Namespace) -> int:
    """Print what siblings buy."""
    rtts, acceptances = (args.rtt[1:2], args.acceptance[1:2]) if args.quick else (args.rtt, args.acceptance)
    base = Setting(profile=args.profile, tokens=args.tokens)
    settings = [
        base.but(draft=draft, kbps=kbps, rtt_ms=rtt, acceptance=a, free_run=policy, rate=rate, tree=f"siblings:{width}")
        for draft in args.draft
        for policy, rate in POLICIES
        for kbps in args.kbps
        for width in args.width
        for rtt in rtts
        for a in acceptances
    ]
    runs = run_all(measure, settings, args.jobs)
    found = summaries(runs)
    sys.stdout.write(report(found))
    write_json(args.json, {"runs": as_data(runs), "summaries": as_data(found)})
    return 0
