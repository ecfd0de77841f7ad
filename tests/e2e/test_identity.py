"""The same (prompt, seed, parameters) gives the same ids, however they are run: the project's first promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch

from acespec.cloud.scheduler import FreeRun
from acespec.edge.completion import Completion
from acespec.edge.turn_request import TurnRequest
from tests.e2e.grid import FACTORS, WAN50, Cell, cells, expected, run
from tests.e2e.local import complete, edge, tiny_model, verifier
from tests.e2e.pairwise import all_pairs, covering_rows, pairs_of

TOKENS = 18
GRID = cells()
DRAFTERS = FACTORS["drafter"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    yield


def test_the_grid_covers_every_pair_with_few_cells() -> None:
    met = {pair for cell in GRID for pair in pairs_of({name: getattr(cell, name) for name in FACTORS})}
    assert met == all_pairs(FACTORS)
    assert len(GRID) <= 64
    assert covering_rows({"a": (0, 1), "b": (0, 1), "c": (0, 1)}, 3), "small arrays work too"


@pytest.mark.parametrize("model_type", FACTORS["model"])
@pytest.mark.parametrize("filters", ["none", "all"])
async def test_plain_decoding_equals_a_bare_loop(model_type: str, filters: str) -> None:
    plain = Cell("none", 0, 0.7, filters, False, FreeRun.ALWAYS.value, False, model_type, 0.0)  # type: ignore[arg-type]
    done = await run(plain, TOKENS)
    assert list(done.token_ids) == expected(plain, TOKENS)
    assert done.totals.draft_tokens == 0
    assert done.totals.plain_steps == done.totals.verify_steps == len(done.token_ids)


@pytest.mark.parametrize("drafter", DRAFTERS)
async def test_ids_are_the_same_in_every_cell(drafter: str) -> None:
    count = await _check([cell for cell in GRID if cell.drafter == drafter], TOKENS)
    _check_that_drafts_mattered(drafter, count)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("drafter", DRAFTERS)
async def test_ids_are_the_same_over_a_narrow_link(drafter: str, seed: int) -> None:
    grid = [replace(cell, shaped=True) for cell in cells(seed) if cell.drafter == drafter]
    _check_that_drafts_mattered(drafter, await _check(grid, 32, narrow=True))


async def test_seeds_and_parameters_do_change_the_ids() -> None:
    """Equality above would be worth little if everything gave the same text."""
    base = Cell("none", 0, 0.7, "none", False, "always", False, "llama", 0.0)
    variants = [base, replace(base, seed=8), replace(base, temperature=1.0), replace(base, temperature=0.0)]
    variants += [replace(base, filters="all"), replace(base, model="qwen2")]
    texts = {tuple(expected(cell, TOKENS)) for cell in variants}
    assert len(texts) == len(variants)


async def test_two_turns_of_one_session_equal_two_sessions() -> None:
    """KV that a session keeps between turns is as good as KV computed from nothing, also after an edit."""
    model = tiny_model("llama")
    request = TurnRequest(seed=3, max_tokens=12)
    async with verifier(model) as address:
        async with edge(address, model) as client:
            prompt = model.tokenizer.encode("The river")
            first = await complete(client, prompt, request)
            longer = [*prompt, *first.token_ids, *model.tokenizer.encode(" and the stones")]
            edited = [*longer[:-4], *model.tokenizer.encode(" of it")]
            kept = [(await complete(client, ids, request)).token_ids for ids in (longer, edited)]
        fresh = []
        for ids in (longer, edited):
            async with edge(address, model) as client:
                fresh.append((await complete(client, ids, request)).token_ids)
    assert kept == fresh


async def _check(grid: Sequence[Cell], tokens: int, *, narrow: bool = False) -> Counter[str]:
    count: Counter[str] = Counter()
    for cell in grid:
        done = await (run(cell, tokens, WAN50) if narrow else run(cell, tokens))
        assert list(done.token_ids) == expected(cell, tokens), f"other ids in {cell}"
        assert done.resyncs == 0, f"the ends disagreed in {cell}"
        _add(count, cell, done)
    return count


def _add(count: Counter[str], cell: Cell, done: Completion) -> None:
    if cell.length == 0:
        assert done.totals.draft_tokens == 0, f"drafts without being asked for in {cell}"
    count["drafted"] += done.totals.draft_tokens
    count["accepted"] += done.totals.accepted_tokens


def _check_that_drafts_mattered(drafter: str, count: Counter[str]) -> None:
    """The grid must have taken the paths that it is about."""
    drafted, accepted = count["drafted"], count["accepted"]
    match drafter:
        case "none":
            assert drafted == 0
        case "mlx":
            assert accepted > 0.5 * drafted > 10
        case "oracle":
            assert 0.1 * drafted < accepted < 0.95 * drafted  # Its siblings are wrong, so trees have many wrong rows.
            assert drafted > 10
        case "random" | "adversarial":
            assert accepted < 0.2 * drafted
            assert drafted > 10
        case _:
            assert drafted > 0
