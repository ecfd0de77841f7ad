"""The operator's frontier: what speed a session gets for the verifier's time, and where the knee is.

A verifier on which every session of a step costs a whole step (`theory-25ms-serial`), so that its time is what is dear
and the closed forms' counts hold. Load is given as users: as many as would keep the verifier busy for that share of its
time at 20 tokens/s each, if each did with the fewest steps, 1/E of a chain of 8. The measured share stands beside it.

    python -m acespec.bench.brain frontier --out frontier --json frontier.json

`always` and the two baselines know no rate; their readers want 20 tokens/s. The knee of theory.md, section 9, is
r = E/(C + D t_d), at the best D; the measured one is the highest rate that was held with hardly more steps per token
than the lowest needed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from acespec.bench.brain.study import SHAPES, Setting, add_common, as_data, run_all, run_setting, table, write_json
from acespec.proto.errors import UsageError
from acespec.proto.framing import message_bytes
from acespec.sim.theory.capacity import fewest_steps_per_token, knee_rate
from acespec.sim.theory.costs import Costs, serialisation_ms

PROFILE = "theory-25ms-serial"
ACCEPTANCE, T_D_MS, T_V_MS = 0.8, 5.0, 25.0
RTTS_MS = (30.0, 100.0, 300.0)
LOADS = (0.1, 0.5, 0.9)
IDLE_RATES = (10.0, 20.0, 40.0)
NEVER_RATES = (5.0, 10.0, 15.0, 20.0, 30.0, 40.0)
READER = 20.0
"""Tokens/s that a reader wants where no rate is granted."""
TOKENS = 160
DEPTH, MOST_DEPTH = 8, 16
NODE_BYTES, ENVELOPE_BYTES = 20 / 8, 12
CHEAP = 1.5
"""Steps per token over the fewest that still count as the cheap side of the knee."""
HELD = 0.97
"""Share of tokens on schedule from which a rate counts as held."""


@dataclass(frozen=True, slots=True)
class Point:
    """One way to serve so many users. Rates are tokens/s of a session, `verifier_ms` the verifier's time per token.

    `way` is `ours`, `plain` or `coloc`; `tree` and `policy` are of ours. `busy` is the share of the time that the
    verifier worked; a session that has to be served twice as fast may well keep it less busy.
    """

    rtt_ms: float
    load: float
    users: int
    way: str
    tree: str
    policy: str
    rate: float
    tokens_per_s: float
    on_schedule: float
    verifier_ms: float
    steps: float
    busy: float

    @property
    def granted(self) -> float | None:
        """The granted rate, where it decides anything."""
        return self.rate if self.policy in ("idle", "never") else None


@dataclass(frozen=True, slots=True)
class Knee:
    """Where a rate begins to cost steps. Rates in tokens/s, `steps` per token.

    Attributes:
        form: r = E/(C + D t_d) of an unloaded verifier, at its best D.
        measured: the highest rate that was tried and needed at most CHEAP times the fewest steps, and no lower one
            needed more.
        fewest: steps of the cheapest rate; `below` the most at any rate up to 0.9 `form`, `above` at rates beyond it.
        cheap: true if `below`, and at 90 % load `above` too, is within CHEAP of the fewest.
    """

    rtt_ms: float
    load: float
    tree: str
    form: float
    measured: float | None
    fewest: float
    below: float | None
    above: float | None
    cheap: bool


def users_at(load: float) -> int:
    """Users that keep the verifier busy for `load` of its time at the fewest steps."""
    return max(1, round(load * 1000 / (READER * T_V_MS * fewest_steps_per_token(ACCEPTANCE, DEPTH))))


def form_knee(rtt_ms: float, kbps: float) -> float:
    """E/(C + D t_d) in tokens/s at the best D; a message each way for each step."""

    def rate(depth: int) -> float:
        up = message_bytes(round(ENVELOPE_BYTES + depth * NODE_BYTES))
        tau = serialisation_ms(up, message_bytes(ENVELOPE_BYTES), kbps)
        return knee_rate(Costs(t_d=T_D_MS, t_v=T_V_MS, t_ar=T_V_MS, R=rtt_ms, tau=tau), ACCEPTANCE, depth)

    return max(map(rate, range(1, MOST_DEPTH + 1)))


def settings_of(rtt_ms: float, load: float, shapes: Sequence[str], quick: bool, tokens: int) -> list[Setting]:
    """Every way to serve under one condition."""
    base = Setting(rtt_ms=rtt_ms, profile=PROFILE, edges=users_at(load), tokens=tokens, rate=READER, token_ms=T_D_MS)
    ways = [base.but(strategy="plain"), base.but(strategy="coloc")]
    for tree in shapes:
        ours = base.but(tree=tree)
        ways.append(ours)
        ways += [ours.but(free_run="idle", rate=rate) for rate in (IDLE_RATES[1:2] if quick else IDLE_RATES)]
        ways += [ours.but(free_run="never", rate=rate) for rate in (NEVER_RATES[::2] if quick else NEVER_RATES)]
    return ways


def point_of(setting: Setting, load: float) -> Point:
    """Run it."""
    result = run_setting(setting)
    ours = setting.strategy == "ours"
    return Point(
        rtt_ms=setting.rtt_ms,
        load=load,
        users=setting.edges,
        way=setting.strategy,
        tree=setting.tree if ours else "",
        policy=setting.free_run if ours else "",
        rate=setting.rate,
        tokens_per_s=result.tokens_per_s.mean,
        on_schedule=result.on_schedule,
        verifier_ms=1000 * result.verifier_s_per_token,
        steps=result.steps_per_token,
        busy=result.utilisation,
    )


def _measure(item: tuple[Setting, float]) -> Point:
    return point_of(*item)


def knees(points: Iterable[Point], kbps: float) -> list[Knee]:
    """The knee of each condition and shape, by the policy `never`, under which only due sessions step plain."""
    groups: dict[tuple[float, float, str], list[Point]] = {}
    for point in points:
        if point.policy == "never":
            groups.setdefault((point.rtt_ms, point.load, point.tree), []).append(point)
    return [knee_of(group, form_knee(rtt_ms, kbps)) for (rtt_ms, _, _), group in groups.items()]


def knee_of(points: Sequence[Point], form: float) -> Knee:
    """Of points that differ in their granted rates."""
    ordered = sorted(points, key=lambda point: point.rate)
    first, fewest = ordered[0], min(point.steps for point in ordered)
    measured: float | None = None
    for point in ordered:
        if point.steps > CHEAP * fewest:
            break
        measured = point.rate
    below = max((point.steps for point in ordered if point.rate <= 0.9 * form), default=None)
    above = max((point.steps for point in ordered if point.rate > form), default=None)
    asked = [below, above if first.load == max(LOADS) else None]
    cheap = all(steps is None or steps <= CHEAP * fewest for steps in asked)
    return Knee(first.rtt_ms, first.load, first.tree, form, measured, fewest, below, above, cheap)


def report(points: Sequence[Point], found: Sequence[Knee]) -> str:
    """Two tables."""
    head = ("RTT", "load", "users", "way", "tree", "policy", "rate", "tok/s", "on sched", "ms/tok", "steps", "busy")
    rows = [
        (
            f"{p.rtt_ms:.0f}", f"{p.load:.0%}", p.users, p.way, p.tree, p.policy, p.granted, f"{p.tokens_per_s:.1f}",
            f"{p.on_schedule:.1%}", f"{p.verifier_ms:.1f}", f"{p.steps:.3f}", f"{p.busy:.0%}",
        )
        for p in points
    ]  # fmt: skip
    knee_head = ("RTT", "load", "tree", "knee r, form", "r held cheaply", "fewest", "below", "above", "cheap side")
    knee_rows = [
        (
            f"{k.rtt_ms:.0f}", f"{k.load:.0%}", k.tree, f"{k.form:.1f}", k.measured, f"{k.fewest:.3f}",
            _steps(k.below), _steps(k.above), "yes" if k.cheap else "no",
        )
        for k in found
    ]  # fmt: skip
    cheap = sum(knee.cheap for knee in found)
    return (
        f"{table(head, rows)}\nThe knee: verify steps per token by rate, free run never\n{table(knee_head, knee_rows)}"
        f"\nOn the cheap side of the knee (at most {CHEAP:g} times the fewest steps): {cheap} of {len(found)}\n"
    )


def _steps(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options."""
    add_common(parser)
    parser.add_argument("--rtt", type=float, nargs="+", default=RTTS_MS, metavar="MS")
    parser.add_argument("--load", type=float, nargs="+", default=LOADS, metavar="SHARE", help="0 to 1")
    parser.add_argument("--tree", nargs="+", default=SHAPES)
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of each user's answer")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="draw it there; needs acespec[sim]")


def run(args: argparse.Namespace) -> int:
    """Print the frontier."""
    if not all(0 < load <= 1 for load in args.load):
        raise UsageError("--load is a share of the verifier's time: give numbers above 0 and up to 1")
    rtts = args.rtt[1:2] if args.quick and args.rtt is RTTS_MS else args.rtt
    loads = args.load[::2] if args.quick and args.load is LOADS else args.load
    items = [
        (setting, load)
        for rtt_ms in rtts
        for load in loads
        for setting in settings_of(rtt_ms, load, args.tree, args.quick, args.tokens)
    ]
    points = run_all(_measure, items, args.jobs)
    found = knees(points, Setting().kbps)
    sys.stdout.write(report(points, found))
    write_json(args.json, {"points": as_data(points), "knees": as_data(found)})
    if args.out is not None:
        from acespec.bench.brain.frontier_plot import draw

        draw(points, found, args.out)
    return 0
