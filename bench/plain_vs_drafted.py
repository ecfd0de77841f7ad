"""Drafted against plain over a shaped link: five prompts, interleaved pairs, the ratio with its spread.

Each pair runs the same prompt plain and drafted right after one another, in alternating order, on one verifier with
`--free-run always`, so that a machine that gets slower hits both. The ids of each pair must be equal. `random` as the
drafter measures what useless drafts cost.

    python -m acespec.bench.plain_vs_drafted --drafter ngram --drafter random --pairs 3
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acespec.bench.prompts import PROMPTS
from acespec.bench.stack import PLAIN, Mode, Stack, cost_of
from acespec.bench.useless import UselessDrafter
from acespec.edge.completion import Completion
from acespec.proto.errors import AcespecError

Pair = tuple[Completion, Completion]


async def run_pairs(stack: Stack, address: str, mode: Mode, pairs: int, tokens: int) -> list[Pair]:
    """(plain, drafted) completions: every prompt `pairs` times. A drafter keeps what it learns only within a run."""
    done: list[Pair] = []
    request = stack.request(tokens)
    for round_number in range(pairs):
        for number, prompt in enumerate(PROMPTS):
            order = (PLAIN, mode) if (round_number + number) % 2 == 0 else (mode, PLAIN)
            results = {}
            for each in order:
                useless = UselessDrafter() if each.drafter == "random" else None
                async with stack.client(address, each, useless) as client:
                    results[each.name] = await stack.generate(client, prompt, request)
            done.append((results[PLAIN.name], results[mode.name]))
            sys.stderr.write(f"\r{mode.name}: {len(done)} of {pairs * len(PROMPTS)} pairs ")
            sys.stderr.flush()
    sys.stderr.write("\n")
    return done


def summary(mode: Mode, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Ratios of whole-turn tokens/s, pair by pair."""
    ratios = [drafted.tokens_per_s / plain.tokens_per_s for plain, drafted in pairs]
    quartiles = statistics.quantiles(ratios, n=4)
    total = [cost_of([p[i] for p in pairs]) for i in (0, 1)]
    return {
        "drafter": mode.drafter,
        "draft_tokens": mode.draft_tokens,
        "pairs": len(pairs),
        "identical": all(plain.token_ids == drafted.token_ids for plain, drafted in pairs),
        "ratio_median": statistics.median(ratios),
        "ratio_quartiles": [quartiles[0], quartiles[2]],
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "ratio_of_sums": total[1].tokens_per_s / total[0].tokens_per_s,
        "plain": total[0].as_json(),
        "drafted": total[1].as_json(),
        "rtt_ms_p50": 1000 * statistics.median(rtt for _, drafted in pairs for rtt in drafted.rtts),
    }


def show(data: dict[str, Any]) -> None:
    """Print one mode for a person."""
    plain, drafted = data["plain"], data["drafted"]
    low, high = data["ratio_quartiles"]
    lines = [
        f"{data['drafter']} (D {data['draft_tokens']}), {data['pairs']} pairs, ids identical: {data['identical']}",
        f"  ratio drafted/plain tokens/s: median {data['ratio_median']:.3f}, quartiles {low:.3f} .. {high:.3f}, "
        f"range {data['ratio_min']:.3f} .. {data['ratio_max']:.3f}, of sums {data['ratio_of_sums']:.3f}",
    ]
    for name, cost in (("plain", plain), ("drafted", drafted)):
        lines.append(
            f"  {name:8}{cost['tokens_per_s']:6.2f} tokens/s, first after {cost['ttft_s']:.2f} s, "
            f"AL {cost['acceptance_length']:.2f}, D {cost['mean_draft_length']:.2f}, "
            f"{cost['steps_per_token']:.2f} steps and {cost['verify_ms_per_token']:.0f} verifier ms per token, "
            f"IP bytes/token up {cost['up_bytes_per_token']:.0f} down {cost['down_bytes_per_token']:.0f}"
        )
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Entry point; 1 if any ids differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--preset", default="wan50")
    parser.add_argument("--free-run", default="always")
    parser.add_argument("--drafter", action="append", help="none, ngram, mlx, hybrid or random; may be repeated")
    parser.add_argument("--draft-model")
    parser.add_argument("--num-draft-tokens", default="auto")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each prompt and mode")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    kinds = args.drafter or ["ngram", "random"]
    modes = [Mode(f"drafted by {kind}", kind, args.num_draft_tokens, args.draft_model) for kind in kinds]
    results: list[dict[str, Any]] = []
    try:
        with Stack.running(args.model, free_run=args.free_run) as stack, stack.link(args.preset, "link") as link:
            for mode in modes:
                pairs = asyncio.run(run_pairs(stack, link.address, mode, args.pairs, args.tokens))
                results.append(summary(mode, pairs))
                show(results[-1])
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0 if all(r["identical"] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
