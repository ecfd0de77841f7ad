"""Conditions that change in the middle of an answer: how long until the speed is what the new ones allow?

Each change is run with several seeds, and so is the same answer under the new conditions from its first token on. A
replayed guess is right or wrong by its position, so the two can be compared token by token: the speed of the next
`WINDOW` tokens here over that of the same tokens there, all seeds together. A run has adapted when that ratio is at
least 90 %; the time is counted from the change to the first token of the first such window, and of the first behind
which no window is slower again. What is faster than it will be in the long run is no fault.

    python -m acespec.bench.brain drift

The verifier is one whose step is dear (`a100-70b`), so that drafts decide the speed. A change of the round trip or the
rate comes at a time, a change of acceptance at a position; the drafter goes on claiming what was true before.
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from acespec.bench.brain.study import Setting, add_common, as_data, run_all, table, write_json
from acespec.proto.errors import UsageError
from acespec.sim.world.world import World

WINDOW = 40
"""Tokens whose speed is compared: a few seconds of this verifier."""
NEAR = 0.1
SAMPLE_S = 0.005
CHANGE_S, CHANGE_AT = 15.0, 200
FAR_S = 1e6
"""A period of a rate trace that no run sees the end of."""


@dataclass(frozen=True, slots=True)
class Change:
    """From one condition to another: `drifting` is a run in which it happens, `settled` one that begins behind it."""

    name: str
    drifting: Setting
    settled: Setting

    @property
    def at_s(self) -> float | None:
        """When it happens; None: at the position CHANGE_AT."""
        return None if "@" in self.drifting.acceptance else CHANGE_S


@dataclass(frozen=True, slots=True)
class Readapted:
    """What came of a change. Speeds in tokens/s, means over seeds; times in seconds.

    Attributes:
        before: speed of the tokens before the change.
        steady: speed under the new conditions, the same tokens.
        first_s: from the change until the speed is 90 % of `steady` for a window; None if it never is.
        readapt_s: from the change until it stays there; None if it never does.
        lowest: the least share of `steady` that a window behind the change reached.
        window_s: how long WINDOW tokens take at `steady`.
        rest: share of `steady` that all tokens from half the time behind the change on reached.
    """

    name: str
    before: float
    steady: float
    first_s: float | None
    readapt_s: float | None
    lowest: float
    window_s: float
    rest: float


class Timeline:
    """When each token of an answer was there; `times[k]` for the token k, from 0. In seconds of virtual time."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times = times

    @classmethod
    def of(cls, setting: Setting) -> Timeline:
        """Run it in the world."""
        return cls.watched(World(setting.scenario()))

    @classmethod
    def watched(cls, world: World) -> Timeline:
        """Let `world` run, looking at its first edge every SAMPLE_S."""
        record, agenda = world.recorder.edges[0], world.agenda
        times: list[float] = []

        def look() -> None:
            times.extend([agenda.now] * (record.tokens - len(times)))
            agenda.at(agenda.now + SAMPLE_S, look)

        agenda.at(0.0, look)
        world.run()
        times.extend([agenda.now] * (record.tokens - len(times)))
        return cls(times)

    def first_after(self, seconds: float) -> int:
        """The first token that came at `seconds` or later."""
        return bisect_left(self.times, seconds)


def changes(base: Setting) -> list[Change]:
    """A longer and a shorter round trip, a slower and a faster link, a worse and a better drafter."""
    return [
        *(rtt_change(base, a, b) for a, b in ((30.0, 300.0), (300.0, 30.0))),
        *(rate_change(base, a, b) for a, b in ((250.0, 10.0), (10.0, 250.0))),
        *(acceptance_change(base, a, b) for a, b in ((0.9, 0.5), (0.5, 0.9))),
    ]


def rtt_change(base: Setting, before: float, after: float) -> Change:
    """The round trip changes, in milliseconds."""
    step = {"delay_steps": [{"start_s": CHANGE_S, "delay_ms": after / 2}]}
    return Change(f"RTT {before:g} to {after:g} ms", base.but(rtt_ms=before, link=step), base.but(rtt_ms=after))


def rate_change(base: Setting, before: float, after: float) -> Change:
    """The rate changes both ways, in Kbps."""
    trace = {"points": [[0, before], [CHANGE_S, after]], "period_s": FAR_S}
    # The trace states its own mean, and so takes the place of the constant.
    link = {"rate_up": trace, "rate_down": trace, "rate_up_kbps": None, "rate_down_kbps": None}
    return Change(f"{before:g} to {after:g} Kbps", base.but(link=link), base.but(kbps=after))


def acceptance_change(base: Setting, before: float, after: float) -> Change:
    """The drafter's chances change behind CHANGE_AT tokens."""
    drifting = base.but(acceptance=f"{before:g}@0,{after:g}@{CHANGE_AT}")
    return Change(f"acceptance {before:g} to {after:g}", drifting, base.but(acceptance=f"{after:g}"))


def readapted(change: Change, pairs: Sequence[tuple[Timeline, Timeline]]) -> Readapted:
    """Of (drifting, settled) runs, a pair a seed."""
    starts = [CHANGE_AT if change.at_s is None else drifting.first_after(change.at_s) for drifting, _ in pairs]
    length = min(len(drifting.times) for drifting, _ in pairs)
    steps = length - WINDOW - max(starts)
    if steps < 1 or min(starts) < 2:
        raise UsageError("the answer is too short for the change: give more --tokens")
    ratios = [_ratio(pairs, starts, at, at + WINDOW) for at in range(steps)]
    slow = [at for at, ratio in enumerate(ratios) if ratio < 1.0 - NEAR]
    first = next((at for at, ratio in enumerate(ratios) if ratio >= 1.0 - NEAR), steps)
    settled = slow[-1] + 1 if slow else 0
    changed = [change.at_s or drifting.times[start - 1] for (drifting, _), start in zip(pairs, starts, strict=True)]

    def waited(tokens: int) -> float | None:
        """Mean time from the change to that token behind it."""
        waits = [p[0].times[start + tokens] - t for p, start, t in zip(pairs, starts, changed, strict=True)]
        return max(0.0, sum(waits) / len(waits)) if tokens < steps else None

    steady = sum(_span(there, start, start + steps) for (_, there), start in zip(pairs, starts, strict=True))
    began = [(start - 1) / _span(here, 0, start - 1) for (here, _), start in zip(pairs, starts, strict=True)]
    return Readapted(
        name=change.name,
        before=sum(began) / len(began),
        steady=steps * len(pairs) / steady,
        first_s=waited(first),
        readapt_s=waited(settled),
        lowest=min(ratios),
        window_s=WINDOW * steady / steps / len(pairs),
        rest=_ratio(pairs, starts, steps // 2, steps),
    )


def _ratio(pairs: Sequence[tuple[Timeline, Timeline]], starts: Sequence[int], begin: int, end: int) -> float:
    """Speed of tokens [begin, end) behind the change over that of the same ones under the new conditions."""
    here = sum(_span(drifting, s + begin, s + end) for (drifting, _), s in zip(pairs, starts, strict=True))
    there = sum(_span(settled, s + begin, s + end) for (_, settled), s in zip(pairs, starts, strict=True))
    return there / here


def _span(line: Timeline, begin: int, end: int) -> float:
    return max(SAMPLE_S, line.times[end] - line.times[begin])


def measure(change: Change, seeds: int, jobs: int = 1) -> Readapted:
    """Run a change with so many seeds."""
    settings = [
        replace(setting, seed=seed) for seed in range(1, seeds + 1) for setting in (change.drifting, change.settled)
    ]
    lines = run_all(Timeline.of, settings, jobs)
    return readapted(change, list(zip(lines[::2], lines[1::2], strict=True)))


def report(done: Sequence[Readapted]) -> str:
    """A table."""
    head = ("change", "before", "steady tok/s", "90 % in s", "for good", "lowest", f"{WINDOW} tokens in s", "2nd half")
    rows = [
        (d.name, f"{d.before:.1f}", f"{d.steady:.1f}", _seconds(d.first_s), _seconds(d.readapt_s), f"{d.lowest:.0%}",
         f"{d.window_s:.1f}", f"{d.rest:.0%}")
        for d in done
    ]  # fmt: skip
    return table(head, rows)


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options."""
    add_common(parser)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=800)
    parser.add_argument("--profile", default="a100-70b", help="of the verifier")
    parser.add_argument("--free-run", default="always")
    parser.add_argument("--tree", default="on")
    parser.add_argument("--draft", default="rate", help="controller, or fixed:N")


def run(args: argparse.Namespace) -> int:
    """Print how soon it adapts."""
    base = Setting(profile=args.profile, free_run=args.free_run, tokens=args.tokens, tree=args.tree, draft=args.draft)
    done = [measure(change, 2 if args.quick else args.seeds, args.jobs) for change in changes(base)]
    sys.stdout.write(report(done))
    write_json(args.json, as_data(done))
    return 0
