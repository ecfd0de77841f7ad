"""Cells of the identity grid: what varies, how a cell runs, and what it must give."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache

from acespec.cloud.scheduler import FreeRun
from acespec.edge.completion import Completion
from acespec.edge.drafters.base import Drafter, QuietDrafter
from acespec.edge.drafters.hybrid import HybridDrafter
from acespec.edge.drafters.mlx_drafter import MlxDrafter
from acespec.edge.drafters.ngram import NgramDrafter
from acespec.edge.turn_request import TurnRequest, as_sent
from acespec.proto.sampling_params import SamplingParams
from acespec.sim.shaper import Shaper
from acespec.sim.spec import LinkSpec
from tests.drafters import AdversarialDrafter, OracleDrafter, RandomDrafter
from tests.e2e.local import Model, complete, edge, one_at_a_time, tiny_folder, tiny_model, verifier
from tests.e2e.pairwise import Row, covering_rows
from tests.tiny import ModelType

FILTERS: Mapping[str, SamplingParams] = {
    "none": SamplingParams(),
    "top_k": SamplingParams(top_k=5),
    "top_p": SamplingParams(top_p=0.8),
    "min_p": SamplingParams(min_p=0.1),
    "all": SamplingParams(
        top_k=20, top_p=0.9, min_p=0.02, repetition_penalty=1.2, frequency_penalty=0.3, presence_penalty=0.2,
        logit_bias=((65, 1.5), (300, -2.0)),
    ),
}  # fmt: skip

FACTORS: Mapping[str, Sequence[object]] = {
    "drafter": ("none", "ngram", "mlx", "hybrid", "random", "adversarial", "oracle"),
    "length": (0, 1, 2, 3, 5, 8, 16),
    "temperature": (0.0, 0.7, 1.0),
    "filters": tuple(FILTERS),
    "company": (False, True),
    "policy": tuple(policy.value for policy in FreeRun),
    "shaped": (False, True),
    "model": ("llama", "qwen2", "qwen3"),
    "rate": (0.0, 200.0),
    "tree": ("off", "siblings:2", "on"),
}

SURELY_VERIFIED: Row = {
    "length": 5, "temperature": 0.7, "filters": "top_p", "company": False,
    "policy": "never", "shaped": False, "model": "llama", "rate": 0.0,
    "tree": "on",
}  # fmt: skip

QUICK_LINK = LinkSpec(400, 400, 5, name="quick")
WAN50 = LinkSpec.preset("wan50")
TEXTS = (
    "The river was low that summer, and the stones",
    "for index in range(10):\n    print(index, area(index, index + 1))\nfor index in range(10):\n    print(",
    "In 1987 there were 40 houses; in 2024 there are 365. In 1987 there were 40",
    "Ein Löffel, zwei Löffel. 今日は",
)


@dataclass(frozen=True)
class Cell:
    """One way to run a request. All cells of equal `model`, `params`, `seed` and `text` must give the same ids."""

    drafter: str
    length: int
    temperature: float
    filters: str
    company: bool
    policy: str
    shaped: bool
    model: ModelType
    rate: float
    tree: str = "off"
    seed: int = 7
    text: str = TEXTS[1]

    @property
    def params(self) -> SamplingParams:
        chosen = FILTERS[self.filters]
        return as_sent(
            SamplingParams(
                self.temperature, chosen.top_k, chosen.top_p, chosen.min_p, chosen.repetition_penalty,
                chosen.frequency_penalty, chosen.presence_penalty, chosen.logit_bias,
            )
        )  # fmt: skip


def cells(seed: int = 0) -> list[Cell]:
    """A pairwise-covering grid; seeds and texts alternate. One more cell for each drafter makes sure that its drafts
    are verified: without free running and hurry, nothing else starts a step."""
    rows = covering_rows(FACTORS, seed)
    rows += [{**SURELY_VERIFIED, "drafter": drafter} for drafter in FACTORS["drafter"]]
    return [_cell(row, seed * 1000 + n, TEXTS[n % len(TEXTS)]) for n, row in enumerate(rows)]


def expected(cell: Cell, tokens: int) -> list[int]:
    """The cell's ids, from a loop of one token per pass without the service."""
    return list(_expected(cell.model, cell.text, cell.params, cell.seed, tokens))


async def run(cell: Cell, tokens: int, link: LinkSpec = QUICK_LINK) -> Completion:
    """Run a cell over the real stack."""
    model = tiny_model(cell.model)
    # Drafts that cross a link come in time only if a step is not much shorter than the round trip.
    step_s = min(0.05, link.rtt_ms / 1000) if cell.shaped else 0.004
    async with verifier(model, free_run=FreeRun(cell.policy), step_s=step_s) as address:
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(_other(address, model, n)) for n in range(7)] if cell.company else []
            async with _link(address, link if cell.shaped else None) as near:
                done = await _main(near, model, cell, tokens)
            for other in others:
                other.cancel()
    return done


def make_drafter(cell: Cell, tokens: int, prompt_len: int) -> Drafter:
    """`mlx` drafts with the target itself, `hybrid` with another model, `adversarial` knows what to avoid, `oracle` is
    right seven times in ten, so that most of its drafts break off in the middle."""
    match cell.drafter:
        case "none":
            return QuietDrafter()
        case "ngram":
            return NgramDrafter(None)
        case "mlx":
            return MlxDrafter(tiny_folder(cell.model))
        case "hybrid":
            return HybridDrafter(NgramDrafter(None), MlxDrafter(tiny_folder("llama", seed=5)))
        case "random":
            return RandomDrafter(cell.seed)
        case "oracle":
            return OracleDrafter(expected(cell, tokens), 0.7, start=prompt_len, seed=cell.seed)
        case _:
            return AdversarialDrafter(expected(cell, tokens), start=prompt_len, seed=cell.seed, wild=cell.seed % 2 == 0)


async def _main(address: str, model: Model, cell: Cell, tokens: int) -> Completion:
    prompt = model.tokenizer.encode(cell.text)
    drafter = make_drafter(cell, tokens, len(prompt))
    async with edge(address, model, drafter, cell.length, cell.tree) as client:
        # A first turn of one token loads the draft model, so that the second one is drafted from its start.
        first = await complete(client, prompt, _request(cell, 1, model))
        done = await complete(client, prompt, _request(cell, tokens, model))
    assert first.token_ids == done.token_ids[:1], f"a regenerated turn begins with another token: {cell}"
    return done


def _request(cell: Cell, tokens: int, model: Model) -> TurnRequest:
    return TurnRequest(
        params=cell.params,
        seed=cell.seed,
        max_tokens=tokens,
        end_ids=model.tokenizer.eos_ids,
        target_rate=cell.rate,
    )


async def _other(address: str, model: Model, number: int) -> None:
    """A session that keeps the verifier busy with other work for as long as the cell runs."""
    dice = random.Random(number)
    drafter: Drafter = (QuietDrafter(), NgramDrafter(None), RandomDrafter(number))[number % 3]
    async with edge(address, model, drafter, number) as client:
        while True:
            prompt = model.tokenizer.encode(dice.choice(TEXTS))[number:]
            params = SamplingParams(temperature=number / 5, top_k=number)
            await complete(client, prompt, TurnRequest(as_sent(params), dice.getrandbits(53), 40, target_rate=0.0))


@asynccontextmanager
async def _link(address: str, spec: LinkSpec | None) -> AsyncIterator[str]:
    if spec is None:
        yield address
        return
    host, _, port = address.rpartition(":")
    async with Shaper(spec, listen=("127.0.0.1", 0), to=(host, int(port))) as shaper:
        yield f"{shaper.address[0]}:{shaper.address[1]}"


@cache
def _expected(model_type: ModelType, text: str, params: SamplingParams, seed: int, tokens: int) -> tuple[int, ...]:
    model = tiny_model(model_type)
    prompt, ends = model.tokenizer.encode(text), model.tokenizer.eos_ids
    return tuple(one_at_a_time(model.runner, prompt, params, seed, tokens, ends))


def _cell(row: Row, seed: int, text: str) -> Cell:
    return Cell(**row, seed=seed, text=text)  # type: ignore[arg-type]
