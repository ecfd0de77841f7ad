"""What the llama.cpp and the torch drafter share, on the same tiny random weights: right logits, exact rollback."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from acespec.edge.drafters.base import TurnContext, never
from acespec.edge.drafters.gguf_drafter import GgufDrafter, load_gguf
from acespec.edge.drafters.lm_drafter import LmDrafter
from acespec.edge.drafters.logit_source import RollingState
from acespec.edge.drafters.torch_drafter import TorchDrafter, load_torch
from acespec.proto.sampling import sample
from acespec.proto.sampling_params import SamplingParams
from tests.models.tiny_gguf import write_tiny_gguf
from tests.tiny import ModelType

pytest.importorskip("ik_llama_cpp")
torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")

VOCAB = 512
TOLERANCE = {"gguf": 0.05, "torch": 2e-4}
"""llama.cpp keeps its cache in float16, which moves logits of about 10 by some hundredths."""
GREEDY = SamplingParams()
WARM = SamplingParams(temperature=0.9, top_k=50, top_p=0.95, repetition_penalty=1.1)

Load = Callable[[int], RollingState]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(params=["gguf", "torch"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def state(runtime: str, gguf: Path) -> Iterator[Any]:
    made = load(runtime, gguf)
    yield made
    made.close()


def load(runtime: str, gguf: Path, max_kv: int = 256) -> Any:
    if runtime == "gguf":
        return load_gguf(gguf, max_kv)
    return load_torch(gguf.with_suffix(".origin"), max_kv)


def drafter(runtime: str, gguf: Path) -> LmDrafter:
    return GgufDrafter(gguf, 256) if runtime == "gguf" else TorchDrafter(gguf.with_suffix(".origin"), 256)


def turn(params: SamplingParams = GREEDY, prompt_len: int = 4, seed: int = 1) -> TurnContext:
    return TurnContext(params, seed, prompt_len, VOCAB)


def some_ids(count: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(3, VOCAB, size=count)]


def row(state: Any, path: Sequence[int]) -> NDArray[np.float32]:
    logits: NDArray[np.float32] = state.logits_after(path, never)
    return logits


def reference(folder: Path, path: Sequence[int]) -> NDArray[np.float32]:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits: NDArray[np.float32] = model(torch.tensor([list(path)])).logits[0].numpy()
    return logits


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
def test_logits_agree_with_transformers(runtime: str, model_type: ModelType, tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "m.gguf", model_type=model_type, seed=3)
    path = some_ids(40)
    theirs = reference(file.with_suffix(".origin"), path)
    state = load(runtime, file)
    for n in (1, 2, 30, 3, 40):
        np.testing.assert_allclose(row(state, path[:n]), theirs[n - 1], atol=TOLERANCE[runtime])
        assert state.cached == n


walks = st.lists(st.tuples(st.integers(0, 50), st.lists(st.integers(3, 6), min_size=1, max_size=40)), max_size=6)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(walks)
def test_after_any_rollbacks_the_logits_are_as_from_scratch(
    runtime: str, state: Any, gguf: Path, walk: list[tuple[int, list[int]]]
) -> None:
    """B11: the cache holds exactly the path after every call. `state` lives through all examples."""
    path = [5, 3, 4]
    row(state, path)
    for cut, more in walk:
        path = path[: max(1, cut)] + more
        row(state, path)
        assert state.cached == len(path)
    fresh = load(runtime, gguf)
    np.testing.assert_allclose(row(state, path), row(fresh, path), atol=TOLERANCE[runtime])
    fresh.close()


def test_narrow_passes_give_the_same_bits_however_a_path_is_cut(gguf: Path) -> None:
    """llama.cpp only: what makes a recording repeatable."""
    path = some_ids(60)
    whole, single = load("gguf", gguf), load("gguf", gguf)
    whole.widest_pass = 16
    for n in range(1, 61):
        last = row(single, path[:n])
    assert np.array_equal(row(whole, path), last)


def test_rows_of_a_given_text_are_those_of_one_by_one(runtime: str, state: Any, gguf: Path) -> None:
    path = some_ids(50)
    expected = [row(state, path[:n]) for n in range(7, 50)]
    state.logits_after(some_ids(3, seed=9), never)
    rows = list(state.rows(path, 7))
    assert len(rows) == len(expected)
    for ours, theirs in zip(rows, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE[runtime])
    np.testing.assert_allclose(row(state, path[:30]), expected[23], atol=TOLERANCE[runtime])
    for start, length in ((0, 5), (1, 300)):
        with pytest.raises(ValueError, match="window"):
            next(state.rows(some_ids(length), start))


def test_a_window_over_long_paths(runtime: str, gguf: Path) -> None:
    state = load(runtime, gguf, 64)
    path = some_ids(150)
    for length in (60, 64, 65, 66, 100, 149, 150):
        logits = row(state, path[:length])
        assert state.cached <= 64
    fresh = load(runtime, gguf)
    np.testing.assert_allclose(logits, row(fresh, path[state._base :]), atol=TOLERANCE[runtime])


@pytest.mark.parametrize("params", [GREEDY, WARM], ids=["greedy", "warm"])
def test_the_first_guess_is_what_sample_draws_from_the_same_logits(
    runtime: str, gguf: Path, params: SamplingParams
) -> None:
    """B7, B24: a drafter that is the target is always right."""
    ours, theirs = drafter(runtime, gguf), load(runtime, gguf)
    ours.begin(turn(params, 30, seed=77))
    path = some_ids(30)
    for _ in range(20):
        logits = row(theirs, path)
        token = sample(logits, params, 77, len(path), prefix=path, prompt_len=30, vocab_size=VOCAB)
        guesses = ours.propose(path, 4)
        assert guesses[0].token == token
        assert len({g.token for g in guesses}) == len(guesses) <= 4
        path.append(token)


def test_one_round_leaves_accepted_plus_one_new_entries(runtime: str, gguf: Path) -> None:
    ours = drafter(runtime, gguf)
    path = some_ids(20)
    ours.begin(turn(prompt_len=20))
    draft = list(path)
    for _ in range(5):
        draft.append(ours.propose(draft)[0].token)
    assert ours.cached == 24
    committed = [*draft[:22], (draft[22] + 1) % VOCAB]
    ours.commit(committed[20:], 20)
    ours.propose(committed)
    assert ours.cached == 23


def test_a_prefill_stops_when_told_and_goes_on_later(runtime: str, gguf: Path) -> None:
    ours, fresh = drafter(runtime, gguf), drafter(runtime, gguf)
    path = some_ids(200)
    for each in (ours, fresh):
        each.begin(turn(prompt_len=200))
    answers = iter([False, True])
    ours.should_stop = lambda: next(answers)
    assert ours.propose(path) == []
    assert 0 < ours.cached < 200
    ours.should_stop = never
    assert ours.propose(path)[0].token == fresh.propose(path)[0].token


def test_an_id_that_the_model_lacks_is_survived(runtime: str, gguf: Path) -> None:
    """B39: the target's vocabulary may be padded further than the drafter's."""
    ours = drafter(runtime, gguf)
    ours.begin(TurnContext(GREEDY, 1, 2, VOCAB + 64))
    assert ours.propose([5, VOCAB + 60, 7], 3) == ours.propose([5, 0, 7], 3)
    assert max(g.token for g in ours.propose([5, 0, 7], VOCAB + 64)) < VOCAB


def test_what_is_proposed_is_timed_at_the_start(runtime: str, gguf: Path) -> None:
    ours = drafter(runtime, gguf)
    assert ours.proposal_s is None
    ours.begin(turn())
    assert ours.proposal_s is not None
    assert ours.proposal_s > 0
    ours.close()
    ours.close()
    assert ours.cached == 0
    assert ours.propose([1, 2]) == []
