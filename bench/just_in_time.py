"""Just-in-time verification, live: the real stack over shaped links before a replayed verifier.

For each target rate and acceptance: one session alone, then as many as the verifier carries with 97 % of their tokens
on schedule, against plain decoding under the same rule. On schedule: there when a reader of that rate, who starts a
tenth or half a second after the first token, wants it (`reader.py`). Every session has a link of its own.

    python -m acespec.bench.just_in_time --json jit.json
    python -m acespec.bench.just_in_time --profile theory-25ms --sessions 6     # unloaded, six at once for the mean

`theory-25ms-serial` charges each session of a step a whole t_v, as where reading KV rules: verifier steps are what
costs, and the closed forms count them. `theory-25ms` charges a step 25 ms however many share it (up to 256 rows): there
rows are what costs, and drafts pay with rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from acespec.bench.never_slower_cell import is_exact
from acespec.bench.reader import Arrival, on_schedule
from acespec.bench.stack import PLAIN, Cost, Stack, cost_of
from acespec.edge.brain.controllers import make_controller
from acespec.edge.brain.tree_shape import tree_shape
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.drafters.replay_factory import ReplayDrafting, make_replay_drafter
from acespec.proto.replay_profiles import find_drafter, find_verifier
from acespec.sim.link import LinkSpec
from acespec.sim.shaper import Shaper

PROMPT = "Tell me something."
GOAL = 0.97
BUFFERS_S = (0.1, 0.5)
DRAFTER = "theory-5ms"


@dataclass(frozen=True, slots=True)
class Load:
    """What runs at the same time: so many sessions at `rate` tokens/s each, with drafts accepted at `acceptance`, or
    plain if that is 0."""

    profile: str
    policy: str
    preset: str
    rate: float
    acceptance: float
    sessions: int
    seconds: float
    controller: str = "rate"
    tree: str = "on"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went. Shares are means over sessions, one for each of `BUFFERS_S`."""

    load: Load
    shares: tuple[float, ...]
    worst_share: float
    cost: Cost
    exact: bool

    @property
    def steps_per_token(self) -> float:
        """Verify steps, plain ones included, per committed token."""
        return self.cost.steps / self.cost.tokens

    @property
    def carried(self) -> bool:
        """Whether the verifier keeps what it promised."""
        return self.shares[-1] >= GOAL

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self.load) | {
            "shares": dict(zip(map(str, BUFFERS_S), self.shares, strict=True)),
            "worst_share": self.worst_share,
            "exact": self.exact,
            "cost": self.cost.as_json(),
        }

    def line(self) -> str:
        """A row of the table."""
        cost, load = self.cost, self.load
        return (
            f"{load.acceptance or 'plain':>5}  {load.rate:4.0f}  {load.sessions:8d}  "
            + "  ".join(f"{100 * share:7.1f}" for share in self.shares)
            + f"  {cost.tokens_per_s:8.1f}  {self.steps_per_token:10.3f}  {cost.plain_steps / cost.tokens:6.3f}  "
            f"{cost.acceptance_length:5.2f}  {(cost.drafted + cost.steps) / cost.tokens:10.2f}  "
            f"{cost.up_bytes / cost.tokens:5.0f}  {cost.down_bytes / cost.tokens:6.0f}  "
            f"{'' if self.exact else 'WRONG IDS'}"
        )


HEADER = (
    f"{'a':>5}  {'rate':>4}  {'sessions':>8}  "
    + "  ".join(f"{f'% {b:g} s':>7}" for b in BUFFERS_S)
    + f"  {'tokens/s':>8}  {'steps/tok':>10}  {'plain':>6}  {'AL':>5}  {'rows/tok':>10}  {'up B':>5}  {'down B':>6}"
)


async def run_session(stack: Stack, address: str, load: Load, seed: int) -> tuple[Completion, list[Arrival]]:
    """One turn; when its tokens came."""
    if load.acceptance:
        how = ReplayDrafting("replay", profile=DRAFTER, acceptance=str(load.acceptance))
        drafter = make_replay_drafter(how, stack.tokenizer.vocab_size)
        controller, shape = make_controller(load.controller), tree_shape(load.tree)
        client = Client(Endpoint(address, insecure=True), stack.tokenizer, drafter, controller, shape=shape)
    else:
        client = stack.client(address, PLAIN)
    request = replace(stack.request(round(load.rate * load.seconds), seed=seed), target_rate=load.rate)
    text = stack.tokenizer.apply_chat([{"role": "user", "content": PROMPT}])
    arrivals: list[Arrival] = []
    async with client, aclosing(client.stream(stack.tokenizer.encode(text), request)) as parts:
        async for part in parts:
            if isinstance(part, Completion):
                return part, arrivals
            arrivals.append((time.monotonic(), len(part.token_ids)))
    raise RuntimeError("the stream ended without a completion")


async def run_load(stack: Stack, load: Load) -> Outcome:
    """All sessions of `load`, begun within one second."""
    host, port = stack.verifier.split(":")
    spec = LinkSpec.preset(load.preset)

    async def late(address: str, number: int) -> tuple[Completion, list[Arrival]]:
        await asyncio.sleep(number / load.sessions)
        return await run_session(stack, address, load, 100 + number)

    async with AsyncExitStack() as links:
        addresses = []
        for number in range(load.sessions):
            shaper = Shaper(replace(spec, seed=number), listen=("127.0.0.1", 0), to=(host, int(port)))
            await links.enter_async_context(shaper)
            addresses.append("{}:{}".format(*shaper.address))
        results = await asyncio.gather(*(late(address, n) for n, address in enumerate(addresses)))
    runs = [completion for completion, _ in results]
    by_session = [[on_schedule(arrivals, load.rate, b) for b in BUFFERS_S] for _, arrivals in results]
    shares = tuple(sum(column) / len(column) for column in zip(*by_session, strict=True))
    exact = all(is_exact(run, stack.tokenizer.vocab_size) for run in runs)
    return Outcome(load, shares, min(row[-1] for row in by_session), cost_of(runs), exact)


def most_carried(stack: Stack, load: Load, first: int, tell: Any) -> Outcome | None:
    """The largest number of sessions that the verifier carries, searched upwards and downwards from `first`."""
    best: Outcome | None = None
    sessions = max(1, first)
    tried: set[int] = set()
    while sessions >= 1 and sessions not in tried:
        tried.add(sessions)
        outcome = asyncio.run(run_load(stack, replace(load, sessions=sessions)))
        tell(outcome)
        if outcome.carried:
            best = outcome if best is None or sessions > best.load.sessions else best
            sessions += 1
        else:
            sessions -= 1
    return best


def ideal_steps(a: float, depth: int = 8) -> float:
    """Verify steps per token if every step has `depth` drafts: (1 - a) / (1 - a^(depth + 1))."""
    return (1 - a) / (1 - a ** (depth + 1))


def knee(a: float, profile: str, preset: str, depth: int = 8) -> float:
    """E / (C + D t_d) in tokens/s, serialisation of a message of D tokens up and its commit down counted."""
    spec = LinkSpec.preset(preset)
    wire_s = (79 + 2.5 * depth) * 8 / (1000 * spec.rate_up_kbps) + 90 * 8 / (1000 * spec.rate_down_kbps)
    cycle = spec.rtt_ms / 1000 + wire_s + find_verifier(profile).step_s(1) + depth * find_drafter(DRAFTER).token_s
    return (1 / ideal_steps(a, depth)) / cycle


def main() -> int:
    """Print a table as it grows; 1 if an id was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="theory-25ms-serial")
    parser.add_argument("--policy", default="never", choices=("never", "idle", "always"))
    parser.add_argument("--preset", default="wan50")
    parser.add_argument("--rate", type=float, action="append", help="tokens/s; may be repeated [8 12 20 30]")
    parser.add_argument("--acceptance", type=float, action="append", help="may be repeated [0.8 0.65]")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a run")
    parser.add_argument("--sessions", type=int, help="run so many and do not saturate")
    parser.add_argument("--controller", default="rate")
    parser.add_argument("--draft-tree", default="siblings:4")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    outcomes: list[Outcome] = []

    def tell(outcome: Outcome) -> None:
        outcomes.append(outcome)
        sys.stdout.write(outcome.line() + "\n")
        sys.stdout.flush()

    rates: Sequence[float] = args.rate or (8.0, 12.0, 20.0, 30.0)
    step_s = find_verifier(args.profile).step_s(1)
    with Stack.replaying(args.profile, free_run=args.policy, options=["--max-sessions", "512"]) as stack:
        sys.stdout.write(HEADER + "\n")
        carried: dict[tuple[float, float], int] = {}
        for rate in rates:
            for a in (0.0, *(args.acceptance or (0.8, 0.65))):
                load = Load(
                    args.profile, args.policy, args.preset, rate, a, args.sessions or 1, args.seconds, args.controller,
                    args.draft_tree,
                )  # fmt: skip
                alone = asyncio.run(run_load(stack, load))
                tell(alone)
                if args.sessions is None:
                    first = max(2, int(1 / (rate * alone.steps_per_token * step_s)))
                    best = most_carried(stack, load, first, tell)
                    carried[rate, a] = best.load.sessions if best else (1 if alone.carried else 0)
    for (rate, a), sessions in carried.items():
        if a and carried[rate, 0.0]:
            sys.stdout.write(
                f"a = {a}, {rate:.0f} tokens/s: {sessions} sessions against {carried[rate, 0.0]} plain, "
                f"{sessions / carried[rate, 0.0]:.1f}x; ideal steps {ideal_steps(a):.3f}, "
                f"knee {knee(a, args.profile, args.preset):.1f} tokens/s\n"
            )
    if args.json:
        args.json.write_text(json.dumps([outcome.as_json() for outcome in outcomes], indent=1))
    return 0 if all(outcome.exact for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
