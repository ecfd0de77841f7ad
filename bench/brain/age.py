"""A drafter that floods the link: how old are drafts when the cloud has them, and what do commits wait for?

It guesses in no time, never stops, fills siblings:8 at each of 16 places, and is always wrong and sure of itself, so
that each commit voids all it has said and it starts anew. A draft's age runs from its making to its arrival at the
session in the verifier. The session's own commits are held against those of the same answer without drafts, token by
token: how much later was each there?

    python -m acespec.bench.brain age            # in virtual time
    python -m acespec.bench.brain age --live     # and over the real stack with a proxied link, in 20 s
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from acespec.bench.brain.drift import Timeline
from acespec.bench.brain.flood import Ages, world_ages
from acespec.bench.brain.study import Setting, add_common, as_data, table, write_json

MOST_AGE_S = 1.0
DRAFTS = ("fixed:16", "rate")
SHAPES = ("off", "siblings:8", "on")
PROFILES = ("h100-8b", "theory-25ms", "a100-70b")
"""Steps of 7.5, 25 and 146 ms."""


@dataclass(frozen=True, slots=True)
class Flooded:
    """One run. Times in seconds.

    Attributes:
        drafts: that arrived, per committed token.
        age, age_p95: of drafts on arrival, median and 95th percentile.
        busy: share of the uplink's time that the flood filled.
        speed: tokens/s over those of the same answer without drafts.
        later, later_p95: how much later than there a token was, median and 95th percentile; below 0 if earlier.
    """

    where: str
    profile: str
    kbps: float
    rtt_ms: float
    draft: str
    tree: str
    drafts: float
    age: float
    age_p95: float
    busy: float
    speed: float
    later: float
    later_p95: float

    @property
    def young(self) -> bool:
        """The bound holds."""
        return self.age < MOST_AGE_S


def measure(setting: Setting) -> Flooded:
    """Run it with the flood and without drafts, in the world."""
    ages, flooded, up_bytes = world_ages(setting)
    plain = Timeline.of(setting.but(strategy="plain")).times
    later = sorted(a - b for a, b in zip(flooded, plain, strict=True))
    seconds = flooded[-1] - flooded[0]
    return _result("world", setting, ages, len(flooded), 8 * up_bytes / 1000 / setting.kbps / flooded[-1],
                   (plain[-1] - plain[0]) / seconds, later)  # fmt: skip


def _result(
    where: str, setting: Setting, ages: Ages, tokens: int, busy: float, speed: float, later: Sequence[float]
) -> Flooded:
    seconds = sorted(ages.seconds) or [0.0]
    return Flooded(
        where, setting.profile, setting.kbps, setting.rtt_ms, setting.draft, setting.tree,
        drafts=len(ages.seconds) / tokens, age=statistics.median(seconds), age_p95=_at(seconds, 0.95), busy=busy,
        speed=speed, later=_at(later, 0.5), later_p95=_at(later, 0.95),
    )  # fmt: skip


def measure_live(setting: Setting, seconds: float) -> Flooded:
    """The same over the real stack, half of the time each way; the proxy keeps the link's rate and delay."""
    from acespec.bench.brain.flood_live import live_ages

    ages, flooded, busy, plain = live_ages(setting, seconds / 2)
    count = min(len(flooded), len(plain))
    later = sorted(a - b for a, b in zip(flooded[:count], plain[:count], strict=True))
    speed = (plain[count - 1] - plain[0]) / (flooded[count - 1] - flooded[0])
    return _result("live", setting, ages, count, busy, speed, later)


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(found: Sequence[Flooded]) -> str:
    """A table, and whether the bound holds."""
    head = ("where", "verifier", "Kbps", "RTT", "draft", "tree", "drafts/tok", "age s", "p95", "link busy", "speed",
            "later ms", "p95")  # fmt: skip
    rows = [
        (f.where, f.profile, f"{f.kbps:g}", f"{f.rtt_ms:.0f}", f.draft, f.tree, f"{f.drafts:.1f}", f"{f.age:.3f}",
         f"{f.age_p95:.3f}", f"{f.busy:.0%}", f"{f.speed:.3f}", f"{1000 * f.later:.1f}", f"{1000 * f.later_p95:.1f}")
        for f in found
    ]  # fmt: skip
    young = sum(f.young for f in found)
    return f"{table(head, rows)}median age under {MOST_AGE_S:g} s: {young} of {len(found)}\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options."""
    add_common(parser)
    parser.add_argument("--kbps", type=float, default=50.0)
    parser.add_argument("--rtt", type=float, default=100.0, metavar="MS")
    parser.add_argument("--profile", nargs="+", default=PROFILES, help="of the verifier")
    parser.add_argument("--draft", nargs="+", default=DRAFTS)
    parser.add_argument("--tree", nargs="+", default=SHAPES)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--live", action="store_true", help="the real stack, too")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the live run")


def run(args: argparse.Namespace) -> int:
    """Print ages and delays."""
    profiles, shapes = (args.profile[1:2], args.tree[1:2]) if args.quick else (args.profile, args.tree)
    base = Setting(kbps=args.kbps, rtt_ms=args.rtt, tokens=args.tokens, token_ms=0.0, acceptance="0")
    settings = [
        base.but(profile=profile, draft=draft, tree=tree)
        for profile in profiles
        for draft in args.draft
        for tree in shapes
    ]
    found = [measure(setting) for setting in settings]
    if args.live:
        live = base.but(profile="theory-25ms", draft="fixed:16", tree="siblings:8")
        found.append(measure_live(live, args.seconds))
    sys.stdout.write(report(found))
    write_json(args.json, as_data(found))
    return 0
