"""Three cells of a real pair: real models on both ends, the real stack between, over three links.

`qwen` is Qwen2.5-Coder 0.5B in llama.cpp, 4-bit, for 1.5B in our own engine, float32. `smollm2` is the default model
with its own 4-bit form as the drafter, which is right nearly always. Each end has one thread. Beside each speed stands
what the world says with the plain step and the time of a proposal that were measured, and with a recording of the very
answers: at each position, the rank of the target's token among the drafter's guesses. What further rows cost is taken
from the profile `cpu-135m`, in proportion.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from acespec.bench.brain.cells import PLAIN, Way, ours
from acespec.bench.never_slower_cell import slope
from acespec.bench.prompts import PROMPTS
from acespec.bench.stack import Stack
from acespec.edge.brain.controller import FixedController
from acespec.edge.brain.controllers import make_controller
from acespec.edge.brain.tree_shape import CHAIN, tree_shape
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.drafters.base import Drafter, TurnContext
from acespec.edge.drafters.factory import make_drafter
from acespec.models.store import resolve
from acespec.proto.errors import ModelNotFound, UsageError
from acespec.proto.replay_profiles import find_verifier
from acespec.proto.sampling_params import SamplingParams
from acespec.sim.world.scenario import DrafterSpec, LinkChoice, LoadSpec, Scenario, StrategySpec, TargetSpec
from acespec.sim.world.world import run as run_world

LINKS = ("wan50", "ltem_capped", "gprs")
WAYS = (PLAIN, ours("fixed:4"), ours("fixed:8"), ours("rate"), ours("rate", "on"))
CURVE = "cpu-135m"
WARM_UP = 4
"""Tokens of a first answer that is not counted: meanwhile the drafter is loaded."""
GUESSES = 8
NEVER = 64
"""The rank of a token that is not among them."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and the 4-bit model that drafts for it in llama.cpp."""

    name: str
    target: str
    drafter: str


@dataclass(frozen=True, slots=True)
class Measured:
    """One way over one link: decoding speed, and what the world says of it."""

    way: str
    tokens_per_s: float
    world: float
    step_ms: float
    steps_per_token: float
    same_ids: bool


def find_pair(name: str) -> Pair:
    """The pair, if it is on this machine; nothing is fetched.

    Raises:
        UsageError: there is no such pair.
        ModelNotFound: it is not here; the message says how to get it.
    """
    if name == "smollm2":
        resolve("smollm2-135m", offline=True)
        return Pair(name, "smollm2-135m", "smollm2-135m")
    if name != "qwen":
        raise UsageError(f"no real pair {name!r}: choose qwen or smollm2")
    from acespec.bench.real_pair import DRAFTER, TARGET, fetch_part_file

    try:
        target, drafter = (fetch_part_file(part, offline=True) for part in (TARGET, DRAFTER))
    except ModelNotFound as error:
        raise ModelNotFound(f"{error}; `python -m acespec.bench.real_pair` fetches the pair") from error
    return Pair(name, str(target), str(drafter))


def run_real(name: str, tokens: int, *, quick: bool, file: Path | None) -> int:
    """Measure and print; 1 if ids differ. Where the pair is not on this machine it says so, and nothing has failed."""
    try:
        pair = find_pair(name)
    except ModelNotFound as error:
        sys.stdout.write(f"skipped: {error}\n")
        return 0
    resolve(pair.target)  # Converting takes longer than a verifier may take to start.
    prompts = PROMPTS[2:3] if quick else PROMPTS[1:3]
    cells: list[dict[str, object]] = []
    same = True
    with Stack.running(pair.target) as stack, tempfile.TemporaryDirectory(prefix="acespec-pair-") as folder:
        known: Known | None = None
        for preset in LINKS[:1] if quick else LINKS:
            with stack.link(preset, preset) as link:
                turns = asyncio.run(answer_all(stack, pair, link.address, prompts, tokens))
            if known is None:
                known = learn(stack, pair, turns[PLAIN.name], Path(folder))
                sys.stdout.write(f"{pair.name}: {known}\n{HEADER}\n")
            rows = compare(turns, known, preset)
            same = same and all(row.same_ids for row in rows)
            sys.stdout.write("".join(_line(preset, row) + "\n" for row in rows))
            sys.stdout.flush()
            ways = [asdict(row) for row in rows]
            cells.append({"pair": pair.name, "link": preset, "known": str(known), "ways": ways})
    if file is not None:
        file.write_text(json.dumps(cells, indent=1) + "\n", encoding="utf-8")
    return 0 if same else 1


@dataclass(frozen=True, slots=True)
class Turn:
    """A finished answer, the ids that were asked, and its decoding speed in tokens/s."""

    asked: tuple[int, ...]
    done: Completion
    speed: float


async def answer_all(
    stack: Stack, pair: Pair, address: str, prompts: Sequence[str], tokens: int
) -> dict[str, list[Turn]]:
    """All ways over one link. The prompts are answered in turn, each way in a session of its own."""
    return {way.name: await _answers(stack, pair, address, way, prompts, tokens) for way in WAYS}


async def _answers(stack: Stack, pair: Pair, address: str, way: Way, prompts: Sequence[str], tokens: int) -> list[Turn]:
    plain = way.strategy == PLAIN.strategy
    drafter = _drafter(stack, "none" if plain else "gguf", pair)
    controller = FixedController(0) if plain else make_controller(str(way.params["draft"]))
    shape = CHAIN if plain else tree_shape(str(way.params["tree"]))
    async with Client(Endpoint(address, insecure=True), stack.tokenizer, drafter, controller, shape=shape) as client:
        await _answer(stack, client, prompts[0], WARM_UP)
        return [await _answer(stack, client, prompt, tokens) for prompt in prompts]


async def _answer(stack: Stack, client: Client, prompt: str, tokens: int) -> Turn:
    """An answer of exactly `tokens`."""
    text = stack.tokenizer.apply_chat([{"role": "user", "content": prompt}])
    ids = tuple(stack.tokenizer.encode(text))
    request = replace(stack.request(tokens), end_ids=(), ignore_eos=True)
    commits: list[tuple[float, int]] = []
    async with aclosing(client.stream(ids, request, text=text)) as parts:
        async for part in parts:
            if isinstance(part, Completion):
                return Turn(ids, part, slope(commits) if tokens > WARM_UP else 0.0)
            if part.token_ids:
                commits.append((time.monotonic(), len(part.token_ids)))
    raise RuntimeError("the stream ended without a completion")


# -- what the world is told of it --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """The pair's measured times, and the file with its answers and the ranks of their tokens."""

    step_s: float
    token_s: float
    acceptance: float
    trace: Path

    def __str__(self) -> str:
        return (
            f"plain step {1000 * self.step_s:.0f} ms, proposal {1000 * self.token_s:.1f} ms, "
            f"{100 * self.acceptance:.1f} % of first guesses right"
        )


def learn(stack: Stack, pair: Pair, plain: Sequence[Turn], folder: Path) -> Known:
    """Ask the drafter, alone, what it would have guessed at each place of the plain answers."""
    drafter = _drafter(stack, "gguf", pair)
    ranks: list[int] = []
    trace = folder / "answers.jsonl"
    with trace.open("w", encoding="utf-8") as file:
        for turn in plain:
            of_turn = _ranks(drafter, turn, stack.tokenizer.vocab_size)
            file.write(json.dumps({"ids": turn.done.token_ids, "ranks": of_turn}) + "\n")
            ranks += of_turn
    token_s = drafter.proposal_s or 0.0
    drafter.close()
    return Known(_step_s(plain), token_s, ranks.count(0) / len(ranks), trace)


def _ranks(drafter: Drafter, turn: Turn, vocab_size: int) -> list[int]:
    prompt, answer = turn.asked, turn.done.token_ids
    drafter.begin(TurnContext(SamplingParams(), turn.done.seed, len(prompt), vocab_size))
    ranks = []
    for at, token in enumerate(answer):
        guesses = [guess.token for guess in drafter.propose([*prompt, *answer[:at]], GUESSES)]
        ranks.append(guesses.index(token) if token in guesses else NEVER)
    return ranks


def compare(turns: Mapping[str, Sequence[Turn]], known: Known, preset: str) -> list[Measured]:
    """Each way over one link, beside the world."""
    plain = [turn.done.token_ids for turn in turns[PLAIN.name]]
    return [
        Measured(
            way=way.name,
            tokens_per_s=statistics.fmean(turn.speed for turn in turns[way.name]),
            world=in_world(preset, way, known, len(plain[0])),
            step_ms=1000 * _step_s(turns[way.name]),
            steps_per_token=_sum(turns[way.name], "verify_steps") / sum(map(len, plain)),
            same_ids=[turn.done.token_ids for turn in turns[way.name]] == plain,
        )
        for way in WAYS
    ]


def _drafter(stack: Stack, kind: str, pair: Pair) -> Drafter:
    return make_drafter(
        kind,
        draft_model=None if kind == "none" else pair.drafter,
        model_key=pair.name,
        vocab_size=stack.tokenizer.vocab_size,
        cache_dir=None,
        offline=True,
    )


def in_world(preset: str, way: Way, known: Known, tokens: int) -> float:
    """Tokens/s of the same in the world; the curve of rows is that of `CURVE`, scaled to the plain step."""
    curve = find_verifier(CURVE)
    scale = known.step_s / curve.step_s(1)
    points = tuple((rows, seconds * scale) for rows, seconds in curve.curve)
    profile = known.trace.with_name("measured.json")
    replace(curve, name="measured", curve=points, prefill_rate=curve.prefill_rate / scale).save(profile)
    scenario = Scenario(
        duration_s=1e5,
        link=LinkChoice(preset),
        target=TargetSpec(profile=str(profile), free_run="always", target_rate=0.0),
        drafter=DrafterSpec(token_ms=1000 * known.token_s, acceptance=str(known.trace)),
        load=LoadSpec(turns=4, tokens=tokens, think_s=0.5),
        strategy=StrategySpec(way.strategy, way.params),
    )
    return run_world(scenario).tokens_per_s.mean


# -- for a person ------------------------------------------------------------------------------------------------------

HEADER = f"{'link':12} {'way':14} {'tokens/s':>8} {'world':>7} {'step ms':>8} {'steps':>6}  ids"


def _step_s(turns: Sequence[Turn]) -> float:
    return _sum(turns, "verify_us") / 1e6 / _sum(turns, "verify_steps")


def _sum(turns: Sequence[Turn], name: str) -> int:
    return sum(getattr(turn.done.totals, name) for turn in turns)


def _line(preset: str, row: Measured) -> str:
    return (
        f"{preset:12} {row.way:14} {row.tokens_per_s:8.2f} {row.world:7.2f} {row.step_ms:8.1f} "
        f"{row.steps_per_token:6.3f}  {'same' if row.same_ids else 'DIFFERENT'}"
    )
