"""What one verifier makes of many sessions on this CPU: eight at once against one after another, drafted against plain.

The engine as it serves under `--free-run always`, without a link: all sessions live in this process and answer a
commit at once, though the next step has begun by then, so drafts are of use from the step after it on. Modes take turns
within every round, so that a machine that gets slower hits all; their ids must be equal. With one thread CPU time is
measured, so that other processes' time slices do not count; with more, wall time.

* one: the prompts one after another, plain; all other modes run them at once.
* plain, ngram: without drafts; drafted by n-grams of the text so far.
* known: drafted by one who knows the text, the most that drafts can do here.
* transformers: `generate` on the same weights, unpadded, the prompts one after another.

    python -m acespec.bench.many_sessions --rounds 5 --json out.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from acespec.bench.prompts import PROMPTS
from acespec.cloud.backend import Offer, SessionKey, TurnSpec
from acespec.cloud.device import RunnerOptions
from acespec.cloud.engine import EngineBackend
from acespec.cloud.load import Target, load_target
from acespec.cloud.runner import Block, Drawn, Runner
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.edge.drafters.base import Candidate, Drafter, QuietDrafter, TurnContext
from acespec.edge.drafters.ngram import NgramDrafter
from acespec.models.store import resolve
from acespec.proto.errors import AcespecError
from acespec.proto.messages import Totals
from acespec.proto.nodes import ROOT, Node
from acespec.proto.sampling_params import SamplingParams
from acespec.proto.timing_profile import TimingProfile

MORE_PROMPTS = (
    "Name ten rivers and the seas that they flow into.",
    "Write a letter to a neighbour who has lent you a ladder.",
    "Turn this into a list: we need bread, milk, two lemons, rice, a bag of onions and something for the cat.",
)
SEED = 1
GREEDY = SamplingParams()
LEAST_SURVIVAL = 0.2
"""Drafting ends where the drafter itself thinks that a path is less likely than this."""
MODES = ("one", "plain", "ngram", "known")

Ids = tuple[int, ...]
Clock = Callable[[], float]


class KnownText(QuietDrafter):
    """Says what it was told that the target will say."""

    name = "known"

    def __init__(self, whole: Sequence[int]) -> None:
        super().__init__()
        self._whole = whole

    def propose(self, path: Sequence[int], k: int = 1) -> list[Candidate]:
        """See `Drafter.propose`."""
        return [Candidate(self._whole[len(path)], 1.0, "own")] if len(path) < len(self._whole) else []


class Metered:
    """A runner that counts what decoding costs: steps in which no prompt takes part."""

    def __init__(self, runner: Runner, clock: Clock) -> None:
        self._runner = runner
        self._clock = clock
        self.vocab_size, self.max_length, self.pages = runner.vocab_size, runner.max_length, runner.pages
        self.numerics_id, self.exact = runner.numerics_id, runner.exact
        self.seconds, self.tokens, self.steps, self.rows = 0.0, 0, 0, 0

    def step(self, blocks: Sequence[Block]) -> list[Drawn]:
        """See `Runner.step`."""
        began = self._clock()
        drawn = self._runner.step(blocks)
        if all(block.sample_from == 0 for block in blocks):
            self.seconds += self._clock() - began
            self.tokens += sum(len(d.tokens) for d in drawn)
            self.steps += 1
            self.rows += sum(len(b.tokens) for b in blocks)
        return drawn

    def timing(self) -> TimingProfile:
        """See `Runner.timing`."""
        return self._runner.timing()


@dataclass(frozen=True, slots=True)
class Run:
    """One mode in one round. Tokens/s count whole turns, prompts included; the rest only steps without prompts."""

    mode: str
    texts: tuple[Ids, ...]
    tokens_per_s: float
    verifier_ms_per_token: float
    rows_per_step: float
    acceptance_length: float


class Bench:
    """The target, the prompts, and how to run them."""

    def __init__(self, target: Target, prompts: Sequence[str], *, tokens: int, draft: int, max_rows: int, clock: Clock):
        encode, chat = target.tokenizer.encode, target.tokenizer.apply_chat
        self.prompts = [tuple(encode(chat([{"role": "user", "content": text}]))) for text in prompts]
        self.tokens = tokens
        self._target, self._draft, self._max_rows, self._clock = target, draft, max_rows, clock
        self._texts: tuple[Ids, ...] = ()

    def run(self, mode: str) -> Run:
        """Run all prompts once; `plain` must have run before `known` does."""
        runner = Metered(self._target.runner, self._clock)
        began = self._clock()
        done = asyncio.run(self._run(runner, mode))
        seconds = self._clock() - began
        texts, totals = tuple(ids for ids, _ in done), [t for _, t in done]
        if mode == "plain":
            self._texts = texts
        return Run(
            mode=mode,
            texts=texts,
            tokens_per_s=sum(map(len, texts)) / seconds,
            verifier_ms_per_token=1e3 * runner.seconds / runner.tokens,
            rows_per_step=runner.rows / runner.steps,
            acceptance_length=sum(t.accepted_tokens for t in totals) / sum(t.verify_steps for t in totals),
        )

    async def _run(self, runner: Metered, mode: str) -> list[tuple[Ids, Totals]]:
        limits = Limits(max_length=runner.max_length)
        backend = EngineBackend(
            runner,
            TurnTable(
                runner,
                limits=limits,
                decoder=self._target.decoder,
                free_run=FreeRun.ALWAYS,
                max_rows=self._max_rows,
            ),
        )
        async with backend:
            if mode == "one":
                return [await self._session(backend, n, mode) for n in range(len(self.prompts))]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._session(backend, n, mode)) for n in range(len(self.prompts))]
            return [task.result() for task in tasks]

    async def _session(self, backend: EngineBackend, number: int, mode: str) -> tuple[Ids, Totals]:
        """One turn, drafted right after each commit: the ids and what they cost."""
        key: SessionKey = ("bench", number.to_bytes(16))
        prompt = self.prompts[number]
        drafter = self._drafter(mode, number)
        path, next_id = list(prompt), 0
        spec = TurnSpec(key, prompt, len(prompt), GREEDY, SEED, self.tokens)
        async for committed in backend.open(spec):
            path += committed.tokens
            if committed.finish is not None:
                backend.forget(key)
                return tuple(path[len(prompt) :]), committed.totals or Totals()
            if drafter is not None:
                drafter.commit(committed.tokens, len(path) - len(committed.tokens))
                nodes = self._nodes(drafter, path, next_id)
                backend.offer(key, Offer(0, next_id, nodes, base=len(path), received=len(path)))
                next_id += len(nodes)
        raise RuntimeError("the turn ended without a last word")

    def _drafter(self, mode: str, number: int) -> Drafter | None:
        if mode not in ("ngram", "known"):
            return None
        prompt = self.prompts[number]
        drafter = NgramDrafter() if mode == "ngram" else KnownText([*prompt, *self._texts[number]])
        drafter.begin(TurnContext(GREEDY, SEED, len(prompt), self._target.runner.vocab_size))
        return drafter

    def _nodes(self, drafter: Drafter, path: Sequence[int], first_id: int) -> tuple[Node, ...]:
        """A chain behind `path`, as long as its survival is worth a row."""
        nodes: list[Node] = []
        whole, survival = list(path), 1.0
        while len(nodes) < self._draft and (best := drafter.propose(whole)):
            survival *= best[0].probability
            if survival < LEAST_SURVIVAL:
                break
            nodes.append(Node(first_id + len(nodes) - 1 if nodes else ROOT, best[0].token))
            whole.append(best[0].token)
        return tuple(nodes)


class Transformers:
    """Greedy `generate` of transformers, fp32, no padding, one prompt after another."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        import transformers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self._model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
        self._model.generation_config.eos_token_id = None
        self._clock = clock

    def run(self, prompts: Sequence[Ids], tokens: int) -> Run:
        """The verifier's time of a token is that of a long run less that of one token."""
        long = [self._generate(prompt, tokens) for prompt in prompts]
        short = sum(self._generate(prompt, 1)[0] for prompt in prompts)
        seconds, texts = sum(s for s, _ in long), tuple(ids for _, ids in long)
        each = 1e3 * (seconds - short) / (len(prompts) * (tokens - 1))
        return Run("transformers", texts, len(prompts) * tokens / seconds, each, 1.0, 0.0)

    def _generate(self, prompt: Ids, count: int) -> tuple[float, Ids]:
        import torch

        ids = torch.tensor([prompt])
        began = self._clock()
        with torch.inference_mode():
            out = self._model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, pad_token_id=0
            )
        return self._clock() - began, tuple(int(i) for i in out[0, len(prompt) :])


def measure(bench: Bench, reference: Transformers, rounds: int) -> list[dict[str, Run]]:
    """All modes in every round, in alternating order; a first round warms up and does not count."""
    bench.run("plain")
    done: list[dict[str, Run]] = []
    for number in range(rounds):
        found: dict[str, Run] = {}
        for mode in (*MODES, "transformers")[:: 1 if number % 2 == 0 else -1]:
            is_ours = mode in MODES
            found[mode] = bench.run(mode) if is_ours else reference.run(bench.prompts, bench.tokens)
            sys.stderr.write(f"\rround {number + 1} of {rounds}: {mode}            ")
            sys.stderr.flush()
        done.append(found)
    sys.stderr.write("\n")
    return done


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles over rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of one value a round."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} .. {self.high:.2f})"


RATIOS = (
    ("tokens/s, all at once against one", "tokens_per_s", "plain", "one"),
    ("tokens/s, ngram against plain, all at once", "tokens_per_s", "ngram", "plain"),
    ("tokens/s, known against plain, all at once", "tokens_per_s", "known", "plain"),
    ("tokens/s, one against transformers", "tokens_per_s", "one", "transformers"),
    ("verifier time a token, plain against ngram", "verifier_ms_per_token", "plain", "ngram"),
    ("verifier time a token, plain against known", "verifier_ms_per_token", "plain", "known"),
    ("verifier time a token, transformers against plain", "verifier_ms_per_token", "transformers", "plain"),
    ("verifier time a token, transformers against ngram", "verifier_ms_per_token", "transformers", "ngram"),
)
FIGURES = ("tokens_per_s", "verifier_ms_per_token", "rows_per_step", "acceptance_length")


def results(rounds: Sequence[dict[str, Run]]) -> dict[str, object]:
    """Figures of each mode, ratios round by round (above 1: the first is better), and whether ids are equal."""
    ours = [{run.texts for mode, run in found.items() if mode in MODES} for found in rounds]
    return {
        "identical": len(set.union(*ours)) == 1,
        "as_transformers": all(found["one"].texts == found["transformers"].texts for found in rounds),
        "figures": {
            mode: {name: asdict(Spread.of([getattr(found[mode], name) for found in rounds])) for name in FIGURES}
            for mode in rounds[0]
        },
        "ratios": {
            what: asdict(Spread.of([getattr(found[a], name) / getattr(found[b], name) for found in rounds]))
            for what, name, a, b in RATIOS
        },
    }


def report(rounds: Sequence[dict[str, Run]], sessions: int) -> str:
    """The same for a person."""
    lines = [
        f"{sessions} prompts, {len(rounds)} rounds: median (quartiles)",
        f"{'':14}{'tokens/s':>26}{'verifier ms a token':>28}{'rows a step':>24}{'AL':>24}",
    ]
    for mode in rounds[0]:
        cells = [str(Spread.of([getattr(found[mode], name) for found in rounds])) for name in FIGURES]
        lines.append(f"{mode:14}{cells[0]:>26}{cells[1]:>28}{cells[2]:>24}{cells[3]:>24}")
    lines.append("")
    for what, name, a, b in RATIOS:
        spread = Spread.of([getattr(found[a], name) / getattr(found[b], name) for found in rounds])
        lines.append(f"{what:52}{spread}")
    found = results(rounds)
    lines.append(f"ids equal in all modes and rounds: {'yes' if found['identical'] else 'NO'}")
    lines.append(f"ids equal to those of transformers: {'yes' if found['as_transformers'] else 'no'}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Entry point; 1 if any of our own ids differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=32, help="tokens of each turn")
    parser.add_argument("--draft", type=int, default=16, help="most draft tokens behind a commit")
    parser.add_argument("--max-rows", type=int, default=64)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    clock = time.process_time if args.threads == 1 else time.perf_counter
    prompts = (*PROMPTS, *MORE_PROMPTS)
    try:
        target = load_target(args.model, RunnerOptions(threads=args.threads))
        bench = Bench(target, prompts, tokens=args.tokens, draft=args.draft, max_rows=args.max_rows, clock=clock)
        rounds = measure(bench, Transformers(resolve(args.model), clock), args.rounds)
    except AcespecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stdout.write(report(rounds, len(prompts)))
    found = results(rounds)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0 if found["identical"] else 1


if __name__ == "__main__":
    sys.exit(main())
