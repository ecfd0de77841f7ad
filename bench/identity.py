"""The same ids in twenty ways: every drafter at every draft length, over temperatures and free-run policies.

One verifier process for each policy. The reference of a cell is plain decoding of the same prompt, seed and parameters
on the first of them. Exit status 1 if any ids differ.

    python -m acespec.bench.identity --model smollm2-135m

`--self-draft` asks another question: how often does the model, run by MLX at the edge, guess what it samples itself in
the cloud? Both ends see the same noise, so a guess can miss only where the arithmetic of the two runtimes differs by
more than the lead of the best token; those positions are listed with that lead.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from rich.console import Console
from rich.table import Table

from acespec.bench.prompts import PROMPTS
from acespec.bench.stack import PLAIN, Mode, Stack
from acespec.cloud.draw_rule import DrawRule
from acespec.cloud.runner import Block, pages_for, prefill_chunks
from acespec.cloud.torch_backend.runner import TorchRunner
from acespec.edge.completion import Completion
from acespec.edge.drafters.base import TurnContext
from acespec.edge.drafters.mlx_drafter import MlxDrafter
from acespec.edge.turn_request import TurnRequest, as_sent
from acespec.models.store import resolve
from acespec.proto import noise
from acespec.proto.errors import AcespecError
from acespec.proto.sampling_params import SamplingParams

DRAFTERS = ("none", "ngram", "mlx", "hybrid")
LENGTHS = ("0", "2", "5", "16", "auto")
TEMPERATURES = (0.0, 0.7, 1.0)
POLICIES = ("always", "idle", "never")
POLICY_OF_LENGTH = ("always", "never", "idle", "never", "never")
"""`never` most often: with it, drafts are verified even if the drafter is slower than the target."""
REPETITIVE = PROMPTS[3:5]
"""Prompts whose answers n-grams can guess."""
SEED = 11
SELF_DRAFT_LENGTH = "8"

console = Console(highlight=False)


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to run a prompt."""

    drafter: str
    length: str
    temperature: float
    policy: str
    prompt: str

    @property
    def params(self) -> SamplingParams:
        """No filters: then the lead of the best token is a plain difference of scores."""
        return SamplingParams(temperature=self.temperature)

    def request(self, stack: Stack, tokens: int) -> TurnRequest:
        """No hurry: a session that is never due shows the policy most clearly."""
        return replace(stack.request(tokens, SEED, self.params), target_rate=0.0)


@dataclass(frozen=True, slots=True)
class Miss:
    """A position where the drafter was wrong, and the lead of the target's best token there (scores with noise)."""

    position: int
    lead: float


@dataclass(frozen=True, slots=True)
class SelfDraft:
    """Guesses of one temperature: teacher-forced at every position, and as the service counted them."""

    temperature: float
    positions: int
    misses: tuple[Miss, ...]
    smallest_leads: tuple[float, ...]
    drafted: int
    accepted: int


def twenty_cells() -> list[Cell]:
    """Every drafter with every length; temperatures and prompts rotate through them."""
    return [
        Cell(drafter, length, TEMPERATURES[(n + n // 5) % 3], POLICY_OF_LENGTH[n % 5], REPETITIVE[n % 2])
        for n, (drafter, length) in enumerate(product(DRAFTERS, LENGTHS))
    ]


def run_cells(model: str, cells: Sequence[Cell], tokens: int) -> list[tuple[Cell, Completion, bool]]:
    """Run the cells; each with whether its ids equal those of plain decoding.

    Raises:
        AcespecError: the verifier does not start, or a turn fails.
    """
    truth: dict[tuple[str, float], tuple[int, ...]] = {}
    results: list[tuple[Cell, Completion, bool]] = []
    for policy in POLICIES:
        mine = [cell for cell in cells if cell.policy == policy]
        if not mine:
            continue
        with Stack.running(model, free_run=policy) as stack:
            for cell in mine:
                key = cell.prompt, cell.temperature
                if key not in truth:
                    truth[key] = _complete(stack, replace(cell, drafter="none"), tokens).token_ids
                done = _complete(stack, cell, tokens)
                results.append((cell, done, done.token_ids == truth[key]))
                sys.stderr.write(f"\r{len(results)} of {len(cells)} cells ")
                sys.stderr.flush()
    sys.stderr.write("\n")
    return results


def self_draft(model: str, temperatures: Sequence[float], prompts: Sequence[str], tokens: int) -> list[SelfDraft]:
    """Measure how often `model` as its own drafter is right. Raises as `run_cells`."""
    with Stack.running(model, free_run="never") as stack:
        cells = [
            Cell("mlx", SELF_DRAFT_LENGTH, temperature, "never", prompt)
            for temperature, prompt in product(temperatures, prompts)
        ]
        runs = list(zip(cells, asyncio.run(_all(stack, cells, tokens)), strict=True))
        prompt_ids = {prompt: _prompt_ids(stack, prompt) for prompt in prompts}
        vocab = stack.tokenizer.vocab_size
    folder = resolve(model, offline=True)
    runner, drafter = TorchRunner.load(folder, vocab_size=vocab), MlxDrafter(folder)
    results: list[SelfDraft] = []
    for temperature in temperatures:
        done = [(cell, run) for cell, run in runs if cell.temperature == temperature]
        parts = [_teacher_forced(runner, drafter, cell, prompt_ids[cell.prompt], run) for cell, run in done]
        leads = sorted(lead for part, _ in parts for lead in part)
        results.append(
            SelfDraft(
                temperature,
                len(leads),
                tuple(miss for _, misses in parts for miss in misses),
                tuple(leads[:5]),
                sum(run.totals.draft_tokens for _, run in done),
                sum(run.totals.accepted_tokens for _, run in done),
            )
        )
    drafter.close()
    return results


def _teacher_forced(
    runner: TorchRunner, drafter: MlxDrafter, cell: Cell, prompt: list[int], run: Completion
) -> tuple[list[float], list[Miss]]:
    """(the target's lead at every generated position, the drafter's misses), each guess behind the true prefix."""
    params = as_sent(cell.params)
    sequence = [*prompt, *run.token_ids]
    leads = _leads(runner, params, sequence, len(prompt))
    drafter.begin(TurnContext(params, SEED, len(prompt), runner.vocab_size))
    misses: list[Miss] = []
    for position, lead in enumerate(leads, len(prompt)):
        if [guess.token for guess in drafter.propose(sequence[:position])] != [sequence[position]]:
            misses.append(Miss(position, lead))
    return leads, misses


def _leads(runner: TorchRunner, params: SamplingParams, sequence: list[int], prompt_len: int) -> list[float]:
    """By how much the best score exceeds the second, for every generated position."""
    pages = tuple(range(pages_for(len(sequence))))
    rule = DrawRule(params, SEED, prompt_len)
    leads: list[float] = []
    for start, end in prefill_chunks(0, len(sequence) - 1):
        rows = min(max(prompt_len - 1 - start, 0), end - start)
        block = Block(pages, start, tuple(sequence[start:end]), sequence, rows, rule)
        for row, logits in enumerate(runner.logits([block])[0], start + rows):
            scores = logits[: runner.vocab_size].copy()
            if not params.greedy:
                scores = scores / np.float32(params.temperature) + noise.gumbel(SEED, row + 1, scores.size)
            second, first = np.partition(scores, -2)[-2:]
            leads.append(float(first - second))
    return leads


async def _all(stack: Stack, cells: Sequence[Cell], tokens: int) -> list[Completion]:
    """Turns of one session, whose drafter stays loaded. The first one, of one token, only loads it."""
    mode = PLAIN if cells[0].drafter == "none" else Mode("", cells[0].drafter, cells[0].length, stack.model)
    async with stack.client(stack.verifier, mode) as client:
        await stack.generate(client, cells[0].prompt, cells[0].request(stack, 1))
        return [await stack.generate(client, cell.prompt, cell.request(stack, tokens)) for cell in cells]


def _complete(stack: Stack, cell: Cell, tokens: int) -> Completion:
    return asyncio.run(_all(stack, [cell], tokens))[0]


def _prompt_ids(stack: Stack, prompt: str) -> list[int]:
    return stack.tokenizer.encode(stack.tokenizer.apply_chat([{"role": "user", "content": prompt}]))


def _show_cells(results: Sequence[tuple[Cell, Completion, bool]]) -> None:
    table = Table("drafter", "D", "temp", "policy", "tokens", "drafted", "accepted", "steps", "plain", "ids")
    for cell, done, same in results:
        totals = done.totals
        counts = (len(done.token_ids), totals.draft_tokens, totals.accepted_tokens, totals.verify_steps)
        verdict = "same" if same else "[red]DIFFERENT[/red]"
        table.add_row(
            cell.drafter, cell.length, str(cell.temperature), cell.policy,
            *map(str, counts), str(totals.plain_steps), verdict,
        )  # fmt: skip
    console.print(table)
    console.print(f"{sum(same for _, _, same in results)} of {len(results)} cells give the ids of plain decoding")


def _show_self_draft(results: Sequence[SelfDraft]) -> None:
    for result in results:
        right = result.positions - len(result.misses)
        share = result.accepted / max(1, result.drafted)
        console.print(
            f"T {result.temperature}: {right} of {result.positions} guesses right, behind the true text; "
            f"the verifier accepted {result.accepted} of {result.drafted} drafted tokens ({share:.2%})"
        )
        for miss in result.misses:
            console.print(f"  missed at position {miss.position}: the target's best token leads by {miss.lead:.2g}")
        console.print("  smallest leads of all: " + ", ".join(f"{lead:.2g}" for lead in result.smallest_leads))


def main() -> int:
    """Entry point; 1 if any ids differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--self-draft", action="store_true", help="measure the model as its own drafter instead")
    args = parser.parse_args()
    try:
        if args.self_draft:
            _show_self_draft(self_draft(args.model, TEMPERATURES, PROMPTS[:3], args.tokens))
            return 0
        results = run_cells(args.model, twenty_cells(), args.tokens)
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    _show_cells(results)
    return 0 if all(same for _, _, same in results) else 1


if __name__ == "__main__":
    sys.exit(main())
