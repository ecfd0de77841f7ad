"""One cell of the never-slower table: one verifier profile behind one link, plain and drafted runs in turn.

A process of its own, so that several cells can run side by side: `python -m acespec.bench.never_slower_cell PROFILE
PRESET` prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from acespec.bench.ratio_interval import ratio_interval
from acespec.bench.stack import PLAIN, Stack, cost_of
from acespec.edge.brain.controllers import make_controller
from acespec.edge.brain.tree_shape import tree_shape
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.drafters.replay_factory import ReplayDrafting, make_replay_drafter
from acespec.proto.errors import AcespecError, Unavailable
from acespec.proto.replay_profiles import find_verifier
from acespec.proto.replay_text import SyntheticText

PROMPT = "Tell me something."
FEWEST, MOST = 64, 4000
"""Tokens of a run."""
CONNECTS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Drafted:
    """A way to draft, and the ratio to plain decoding that it must not fall below."""

    name: str
    how: ReplayDrafting
    draft_tokens: str
    bound: float
    tree: str = "on"


DRAFTED = (
    Drafted("replay", ReplayDrafting("replay", acceptance="0.8"), "auto", 0.98),
    Drafted("useless", ReplayDrafting("useless"), "auto", 0.95),
    Drafted("hostile", ReplayDrafting("hostile", profile="instant"), "256", 0.95),
)


def run_length(profile: str, seconds: float) -> int:
    """Tokens that plain decoding makes in about `seconds`."""
    return min(MOST, max(FEWEST, round(seconds / find_verifier(profile).step_s(1))))


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """A finished turn and its decoding speed, tokens/s: the slope of a line through all commits (least squares).

    The speed between the first and the last commit would be as good a figure, were it not for links with losses, where
    either of the two may be a second late.
    """

    completion: Completion
    decode_rate: float


async def run_once(stack: Stack, address: str, mode: Drafted | None, seed: int, tokens: int) -> Run:
    """One turn in a session of its own."""
    if mode is None:
        client = stack.client(address, PLAIN)
    else:
        client = Client(
            Endpoint(address, insecure=True),
            stack.tokenizer,
            make_replay_drafter(mode.how, stack.tokenizer.vocab_size),
            make_controller(mode.draft_tokens),
            shape=tree_shape(mode.tree),
        )
    commits: list[tuple[float, int]] = []
    text = stack.tokenizer.apply_chat([{"role": "user", "content": PROMPT}])
    async with client, aclosing(client.stream(stack.tokenizer.encode(text), stack.request(tokens, seed=seed))) as parts:
        async for part in parts:
            if isinstance(part, Completion):
                return Run(part, slope(commits))
            commits.append((time.monotonic(), len(part.token_ids)))
    raise RuntimeError("the stream ended without a completion")


def slope(commits: Sequence[tuple[float, int]]) -> float:
    """Tokens/s by least squares of the running count over the time; each commit weighs as many points as tokens."""
    times = np.repeat([when for when, _ in commits], [count for _, count in commits])
    return float(np.polyfit(times - times[0], np.arange(len(times)), 1)[0])


async def run_surely(stack: Stack, address: str, mode: Drafted | None, seed: int, tokens: int) -> Run:
    """`run_once`, again where a lossy link let no connection come about: that says nothing about drafting."""
    for _ in range(CONNECTS - 1):
        try:
            return await run_once(stack, address, mode, seed, tokens)
        except Unavailable as error:
            sys.stderr.write(f"{error}; trying again\n")
    return await run_once(stack, address, mode, seed, tokens)


async def run_rounds(
    stack: Stack, address: str, rounds: int, tokens: int, modes: Sequence[Drafted]
) -> dict[str, list[Run]]:
    """Each round runs plain and every mode with one seed, in an order that rotates."""
    ways: list[Drafted | None] = [None, *modes]
    done: dict[str, list[Run]] = {name: [] for name in (PLAIN.name, *(m.name for m in modes))}
    for number in range(rounds):
        for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
            run = await run_surely(stack, address, way, 1000 + number, tokens)
            done[way.name if way else PLAIN.name].append(run)
    return done


def is_exact(run: Completion, vocab_size: int) -> bool:
    """True if the ids are those of the synthetic text."""
    text, start = SyntheticText(vocab_size), run.prompt_tokens
    return all(text.token(run.seed, start + i, start) == token for i, token in enumerate(run.token_ids))


def row(mode: Drafted, plain: list[Run], runs: list[Run], exact: bool) -> dict[str, Any]:
    """A line of the table."""
    pairs = list(zip(runs, plain, strict=True))
    ratios = [d.decode_rate / p.decode_rate for d, p in pairs]
    decode = ratio_interval(ratios)
    whole = ratio_interval([d.completion.tokens_per_s / p.completion.tokens_per_s for d, p in pairs])
    completions = [run.completion for run in runs]
    return {
        "mode": mode.name,
        "bound": mode.bound,
        "ok": exact and decode.low >= mode.bound,
        "exact": exact,
        "decode": dataclasses.asdict(decode),
        "ratios": ratios,
        "whole": dataclasses.asdict(whole),
        "drafted": cost_of(completions).as_json(),
        "received_nodes": sum(run.totals.received_nodes for run in completions),
    }


def measure(profile: str, preset: str, *, rounds: int, seconds: float, modes: Sequence[Drafted]) -> dict[str, Any]:
    """Run the cell."""
    tokens, expected = run_length(profile, seconds), find_verifier(profile).step_s(1)
    with Stack.replaying(profile) as stack, stack.link(preset, "link") as link:
        done = asyncio.run(run_rounds(stack, link.address, rounds, tokens, modes))
        vocab_size = stack.tokenizer.vocab_size
    plain = done[PLAIN.name]
    totals = cost_of([run.completion for run in plain])
    exact = {
        name: all(is_exact(r.completion, vocab_size) and len(r.completion.token_ids) == tokens for r in runs)
        for name, runs in done.items()
    }
    return {
        "profile": profile,
        "preset": preset,
        "tokens": tokens,
        "rounds": rounds,
        "plain": totals.as_json(),
        "plain_decode_tokens_per_s": sum(run.decode_rate for run in plain) / len(plain),
        "step_late_ms": 1e3 * (totals.verify_s / totals.steps - expected),
        "rows": [row(m, plain, done[m.name], exact[m.name] and exact[PLAIN.name]) for m in modes],
    }


def as_asked(mode: Drafted, args: argparse.Namespace) -> Drafted:
    """`mode` with the options of the command line."""
    tokens = mode.draft_tokens if mode.name == "hostile" else args.controller or mode.draft_tokens
    how = dataclasses.replace(mode.how, acceptance=args.acceptance) if mode.name == "replay" else mode.how
    return dataclasses.replace(mode, how=how, draft_tokens=tokens, tree=args.draft_tree)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile")
    parser.add_argument("preset")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--mode", action="append", choices=[m.name for m in DRAFTED])
    parser.add_argument("--controller", help="of the honest and the useless drafter [rate]")
    parser.add_argument("--draft-tree", default="siblings:4")
    parser.add_argument("--acceptance", default="0.8", help="of the honest drafter")
    args = parser.parse_args()
    modes = [as_asked(m, args) for m in DRAFTED if not args.mode or m.name in args.mode]
    try:
        cell = measure(args.profile, args.preset, rounds=args.rounds, seconds=args.seconds, modes=modes)
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stdout.write(json.dumps(cell) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
