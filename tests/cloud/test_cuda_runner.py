"""The GPU's runner, on the interpreter: bits that never move, and tokens that are those of the host's sampling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from acespec.cloud.cuda_backend.limits import bucket
from acespec.cloud.cuda_backend.runner import CudaRunner
from acespec.cloud.draw_block import draw_block
from acespec.cloud.draw_rule import DrawRule
from acespec.kernels.interpreter import fixed_order_dot
from acespec.proto.errors import UsageError
from acespec.proto.sampling_params import SamplingParams
from tests.cloud.cuda_runners import copy_pages, gpu_runner, one_by_one, poison, tiny_gpu_folder
from tests.cloud.torch_runners import VOCAB, TorchRunner, block, in_chunks, text
from tests.tiny import ModelType

START = 253
"""Five rows from here cross the edge of a page and of a split of attention."""
HOME = (1, 2, 3, 4, 5, 6)
OWN = (9, 12, 8, 15, 11, 10)
OTHER = (20, 21, 22, 23, 24, 25)
WINDOW = text(5, seed=3)


@pytest.fixture(autouse=True)
def _as_a_gpu_adds_up() -> Iterator[None]:
    with fixed_order_dot():
        yield


@cache
def runner(family: ModelType = "llama") -> CudaRunner:
    made = gpu_runner(tiny_gpu_folder(family))
    copy_pages(made, HOME, OWN)
    return made


def equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.array_equal(a, b))


@pytest.mark.parametrize("family", ["llama", pytest.param("qwen2", marks=pytest.mark.slow), "qwen3"])
def test_a_window_has_the_bits_of_one_token_at_a_time(family: ModelType) -> None:
    gpu = runner(family)
    plain = one_by_one(gpu, HOME, START, WINDOW)
    poison(gpu, OWN, START)
    (window,) = gpu.logits([block(OWN, START, WINDOW)])
    assert equal(window, plain)
    assert np.isfinite(window).all()


def test_company_changes_no_bit() -> None:
    gpu = runner()
    plain = one_by_one(gpu, HOME, START, WINDOW)
    mates = [block(OTHER[:1], 0, WINDOW[:3]), block(OTHER[1:4], 130, text(2))]
    for order in ([0, 1, 2], [2, 0, 1]):
        blocks = [block(OWN, START, WINDOW), *mates]
        rows = gpu.logits([blocks[n] for n in order])
        assert equal(rows[order.index(0)], plain), order


def test_a_tree_has_the_bits_of_its_chains_and_the_spare_slots_do_not_matter() -> None:
    gpu = runner()
    plain = one_by_one(gpu, HOME, START, WINDOW)
    tokens, parents = list(WINDOW[:1]), [-1]
    for depth, token in enumerate(WINDOW[1:]):
        tokens += [(token + 1) % VOCAB, token]
        parents += [2 * depth, 2 * depth]
    poison(gpu, (gpu.pages,), 0)
    (rows,) = gpu.logits([block(OWN, START, tokens, parents=parents)])
    assert equal(rows[::2], plain)


def test_the_accepted_branch_is_brought_home() -> None:
    gpu = runner()
    plain = one_by_one(gpu, HOME, START, WINDOW)
    drawn = [int(row[:VOCAB].argmax()) for row in plain[:1]]
    wrong = (drawn[0] + 1) % VOCAB
    tree = block(OWN, START, [WINDOW[0], wrong, drawn[0], wrong], parents=[-1, 0, 0, 1])
    (done,) = gpu.step([tree])
    assert done.rows == (0, 2)
    assert done.tokens[0] == drawn[0]
    after = gpu.logits([block(OWN, START + 2, [5])])[0]
    one_by_one(gpu, HOME, START, [WINDOW[0], drawn[0]])
    assert equal(after, gpu.logits([block(HOME, START + 2, [5])])[0])


RULES = (
    SamplingParams(),
    SamplingParams(temperature=0.8),
    SamplingParams(temperature=1.0, top_k=9),
    SamplingParams(temperature=1.3, top_p=0.7),
    SamplingParams(temperature=0.9, top_k=40, top_p=0.9, min_p=0.05),
    SamplingParams(temperature=1.0, repetition_penalty=1.3, logit_bias=((5, 2.0),)),
)


def test_the_device_draws_what_the_host_would() -> None:
    """Every kind of rule in one step, drafts right and wrong; logits asked for once more are the same."""
    gpu = runner()
    pages = [(n,) for n in range(26, 26 + len(RULES))]
    rules = [DrawRule(params, 40 + n, 2, top_logprobs=3 if n == 1 else None) for n, params in enumerate(RULES)]
    rules.append(replace(rules[1], top_logprobs=None))
    pages.append((33,))
    bare = [block(p, 20, [7 + n], rule=rule) for n, (p, rule) in enumerate(zip(pages, rules, strict=True))]
    first = [draw_block(b, rows, VOCAB).tokens[0] for b, rows in zip(bare, gpu.logits(bare), strict=True)]
    drafted = [replace(b, tokens=(*b.tokens, token, 11)) for b, token in zip(bare, first, strict=True)]
    drafted.append(block((34,), 0, text(6), 5, rule=rules[0]))
    drafted.append(block((35,), 0, text(4), 4, rule=rules[0]))
    expected = [draw_block(b, rows, VOCAB) for b, rows in zip(drafted, gpu.logits(drafted), strict=True)]
    assert gpu.step(drafted) == expected
    assert [len(done.tokens) >= 2 for done in expected[:7]] == [True] * 7
    assert expected[-1].tokens == ()


def test_more_blocks_than_a_pass_holds_give_the_same() -> None:
    gpu = runner()
    gpu._limits, limits = replace(gpu._limits, rows=4, kept=4), gpu._limits
    try:
        cut = gpu.step([block(OWN, START, WINDOW[:3]), block((20,), 3, WINDOW[:2]), block((21,), 3, WINDOW[:1])])
    finally:
        gpu._limits = limits
    whole = gpu.step([block(OWN, START, WINDOW[:3]), block((20,), 3, WINDOW[:2]), block((21,), 3, WINDOW[:1])])
    assert cut == whole


def test_rows_that_only_fill_a_graph_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = runner()
    blocks = [block(OWN, START, WINDOW[:2]), block((20,), 3, WINDOW[:1], rule=DrawRule(RULES[3], 5, 0))]
    bare = gpu.step(blocks)
    pipeline = gpu._graphs._pipeline
    monkeypatch.setattr(gpu._graphs, "run", lambda rows, sampled: pipeline.run(bucket(rows), bucket(sampled)))
    assert gpu.step(blocks) == bare


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_it_is_the_model_that_the_cpu_runs(family: ModelType) -> None:
    tokens = text(12)
    (ours,) = runner(family).logits([block((30,), 0, tokens)])
    exact = in_chunks(TorchRunner.load(tiny_gpu_folder(family), vocab_size=VOCAB), tokens, [12])
    spread = float(exact.std())
    assert np.abs(ours - exact).max() < 0.12 * spread, "bf16 keeps 8 bits: more than that is another model"
    assert np.corrcoef(ours.ravel(), exact.ravel())[0, 1] > 0.999


def test_a_device_that_is_not_there_is_refused() -> None:
    assert not torch.cuda.is_available()
    with pytest.raises(UsageError, match="no CUDA device"):
        CudaRunner.load(tiny_gpu_folder(), vocab_size=VOCAB)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_self_check_runs_and_names_the_numerics() -> None:
    loaded = CudaRunner.load(tiny_gpu_folder(), vocab_size=VOCAB, device="cpu", kv_pages=16)
    assert loaded.exact
    assert loaded.wide
    assert loaded.numerics_id.startswith("triton-interpreter-bfloat16-")
    assert loaded.timing().curve[0][0] == 1
    assert loaded.pages == 16
