"""The MLX drafter on tiny random checkpoints: right logits, exact rollback, the shared pipeline, threads, refusals."""

from __future__ import annotations

import json
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from acespec.edge.drafters.base import TurnContext, never
from acespec.edge.drafters.mlx_drafter import MlxDrafter
from acespec.proto.errors import ModelError, UnsupportedModel, UsageError
from acespec.proto.sampling import sample
from acespec.proto.sampling_params import SamplingParams
from tests.tiny import ModelType, tiny_model_folder

with warnings.catch_warnings():
    # What mlx-lm and the libraries below it warn of while being imported is not ours.
    warnings.simplefilter("ignore")
    mlx_state = pytest.importorskip("acespec.edge.drafters.mlx_state")

VOCAB = 320
WINDOW = 64
GREEDY = SamplingParams()
WARM = SamplingParams(temperature=0.9, top_k=50, top_p=0.95, min_p=0.01, repetition_penalty=1.1, presence_penalty=2.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("tiny"), vocab=VOCAB)


def turn(prompt_len: int = 4, params: SamplingParams = GREEDY, seed: int = 1, vocab: int = VOCAB) -> TurnContext:
    return TurnContext(params, seed, prompt_len, vocab)


def some_ids(count: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(3, VOCAB, size=count)]


def row(state: Any, path: Sequence[int]) -> NDArray[np.float32]:
    logits: NDArray[np.float32] = state.logits_after(path, never)
    return logits


@pytest.mark.parametrize("model_type", get_args(ModelType))
@pytest.mark.parametrize("tie", [True, False])
def test_logits_agree_with_transformers(tmp_path: Path, model_type: ModelType, tie: bool) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    checkpoint = tiny_model_folder(tmp_path, model_type=model_type, tie=tie, vocab=VOCAB)
    path = some_ids(40)
    state = mlx_state.MlxState(checkpoint, 512)
    ours = [row(state, path[:n]) for n in (1, 2, 3, 30, 40)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    with torch.no_grad():
        theirs = model(torch.tensor([path])).logits[0].numpy()
    for logits, n in zip(ours, (1, 2, 3, 30, 40), strict=True):
        np.testing.assert_allclose(logits, theirs[n - 1], atol=2e-4)


walks = st.lists(st.tuples(st.integers(0, 50), st.lists(st.integers(3, 6), min_size=1, max_size=24)), max_size=6)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(walks)
def test_after_any_rollbacks_the_logits_and_lengths_are_as_from_scratch(
    folder: Path, walk: list[tuple[int, list[int]]]
) -> None:
    """B11: the cache holds exactly the path after every call."""
    state, path = _shared_state(folder), [5, 3, 4]
    for cut, more in walk:
        path = path[: max(1, cut)] + more
        logits = row(state, path)
        assert state.cached == len(path)
        assert all(cache.offset == len(path) for cache in state._cache)
    fresh = mlx_state.MlxState(folder, 256)
    np.testing.assert_allclose(row(state, path), row(fresh, path), atol=2e-4)
    if walk:
        np.testing.assert_allclose(logits, row(fresh, path), atol=2e-4)


_states: dict[Path, Any] = {}


def _shared_state(folder: Path) -> Any:
    """One state that lives through all examples, so that every example starts from the leftovers of another."""
    return _states.setdefault(folder, mlx_state.MlxState(folder, 256))


def test_one_round_leaves_accepted_plus_one_new_entries(folder: Path) -> None:
    drafter = MlxDrafter(folder)
    path = some_ids(20)
    drafter.begin(turn(20))
    draft = list(path)
    for _ in range(5):
        draft.append(drafter.propose(draft)[0].token)
    before = drafter.cached - 4
    assert before == 20
    committed = [*draft[:22], (draft[22] + 1) % VOCAB]
    drafter.commit(committed[20:], 20)
    drafter.propose(committed)
    assert drafter.cached == before + 2 + 1


@pytest.mark.parametrize("params", [GREEDY, WARM, SamplingParams(temperature=1.0)], ids=["greedy", "warm", "plain"])
def test_the_first_guess_is_what_sample_draws_from_the_same_logits(folder: Path, params: SamplingParams) -> None:
    """B7, B24: a drafter that is the target is always right."""
    drafter, state = MlxDrafter(folder), mlx_state.MlxState(folder, 512)
    path = some_ids(206)
    drafter.begin(turn(200, params, seed=77))
    for _ in range(25):
        logits = row(state, path)
        token = sample(logits, params, 77, len(path), prefix=path, prompt_len=200, vocab_size=VOCAB)
        guesses = drafter.propose(path, 4)
        assert guesses[0].token == token
        assert len({g.token for g in guesses}) == len(guesses) <= 4
        assert all(0 < g.probability <= 1 and g.source == "lm" for g in guesses)
        path.append(token)


def test_asking_again_or_for_more_siblings_runs_no_forward_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = MlxDrafter(folder)
    drafter.begin(turn())
    path = some_ids(10)
    first = drafter.propose(path)
    assert drafter._state is not None
    monkeypatch.setattr(drafter._state, "_model", None)
    assert drafter.propose(path, 3)[:1] == first


def test_a_vocabulary_that_differs_by_padding(tmp_path: Path) -> None:
    """B39: ids beyond the target's vocabulary are never proposed, ids that the model lacks are survived."""
    padded = tiny_model_folder(tmp_path / "padded", vocab=VOCAB, padded_rows=64)
    drafter = MlxDrafter(padded)
    drafter.begin(turn(vocab=VOCAB, params=SamplingParams(temperature=3.0)))
    path = some_ids(5)
    for _ in range(20):
        guesses = drafter.propose(path, 20)
        assert max(g.token for g in guesses) < VOCAB
        path.append(guesses[0].token)
    small = MlxDrafter(tiny_model_folder(tmp_path / "small", vocab=VOCAB))
    small.begin(turn(vocab=VOCAB + 64))
    strange = small.propose([5, VOCAB + 60, 7], 400)
    assert max(g.token for g in strange) < VOCAB
    assert strange == small.propose([5, 0, 7], 400)


def test_long_paths_are_seen_through_a_window(folder: Path) -> None:
    state = mlx_state.MlxState(folder, WINDOW)
    path = some_ids(3 * WINDOW)
    for length in range(1, len(path)):
        logits = row(state, path[:length])
        assert state.cached <= min(length, WINDOW)
        assert length <= WINDOW or state.cached >= WINDOW // 4
    at = state._base
    assert at > 0
    fresh = mlx_state.MlxState(folder, 256)
    np.testing.assert_allclose(logits, row(fresh, path[at : len(path) - 1]), atol=2e-4)


def test_crossing_the_window_back_and_forth_does_not_prefill_again(folder: Path) -> None:
    state = mlx_state.MlxState(folder, WINDOW)
    path = some_ids(WINDOW + 8)
    row(state, path[: WINDOW + 1])
    base = state._base
    assert base == WINDOW // 2
    for length in (WINDOW - 1, WINDOW + 3, WINDOW - 2, WINDOW):
        row(state, path[:length])
        assert (state._base, state.cached) == (base, length - base)
    row(state, some_ids(WINDOW - 3, seed=9))
    assert state._base == 0


def test_a_prefill_stops_when_told_and_goes_on_later(folder: Path) -> None:
    drafter = MlxDrafter(folder)
    drafter.begin(turn(200))
    path = some_ids(200)
    answers = iter([False, True])
    drafter.should_stop = lambda: next(answers)
    assert drafter.propose(path) == []
    done = drafter.cached
    assert 0 < done < 200
    polled: list[int] = []

    def go_on() -> bool:
        polled.append(drafter.cached)
        return False

    drafter.should_stop = go_on
    guess = drafter.propose(path)
    assert polled[0] == done
    fresh = MlxDrafter(folder)
    fresh.begin(turn(200))
    assert fresh.propose(path)[0].token == guess[0].token
    assert drafter.cached == 200


def test_made_in_one_thread_used_in_another(folder: Path) -> None:
    drafter = MlxDrafter(folder)
    path = some_ids(30)
    answers: list[Any] = []

    def work() -> None:
        drafter.begin(turn(30))
        answers.append(drafter.propose(path, 3))
        drafter.close()

    _in_thread(work)
    here = MlxDrafter(folder)
    here.begin(turn(30))
    assert [g.token for g in answers[0]] == [g.token for g in here.propose(path, 3)]


def _in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_next_turn_keeps_the_prefix_it_shares(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = MlxDrafter(folder)
    drafter.begin(turn(100))
    path = some_ids(100)
    drafter.propose(path)
    fed: list[int] = []
    state = drafter._state
    assert state is not None
    forward = state._forward

    def counted(ids: list[int]) -> Any:
        fed.extend(ids)
        return forward(ids)

    monkeypatch.setattr(state, "_forward", counted)
    drafter.begin(turn(90))
    drafter.propose(path[:80] + some_ids(10, seed=5))
    assert len(fed) == 10


def test_nothing_is_said_before_a_turn_or_without_ids(folder: Path) -> None:
    drafter = MlxDrafter(folder)
    assert drafter.propose([1, 2]) == []
    drafter.begin(turn(0))
    assert drafter.propose([]) == []
    drafter.close()
    assert drafter.cached == 0


def edited(folder: Path, **changes: object) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def test_an_unknown_architecture_is_refused_by_name(tmp_path: Path) -> None:
    broken = edited(tiny_model_folder(tmp_path, vocab=VOCAB), model_type="abacus")
    with pytest.raises(UnsupportedModel, match="abacus"):
        MlxDrafter(broken).begin(turn())


def test_missing_weights_are_named(tmp_path: Path) -> None:
    broken = tiny_model_folder(tmp_path, vocab=VOCAB)
    (broken / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="safetensors"):
        MlxDrafter(broken).begin(turn())


def test_a_broken_mlx_is_explained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acespec.edge.drafters.mlx_state", None)
    with pytest.raises(UsageError, match="--drafter ngram"):
        MlxDrafter(folder).begin(turn())


def test_a_state_that_cannot_roll_back_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B15: recurrent state (here: a real one of mlx-lm's) is refused at the start."""
    from mlx_lm.models.cache import ArraysCache, KVCache

    monkeypatch.setattr(mlx_state, "make_prompt_cache", lambda model: [KVCache(), ArraysCache(2)])
    with pytest.raises(UnsupportedModel, match="ArraysCache"):
        MlxDrafter(folder).begin(turn())


def test_sliding_layers_bound_the_window_and_roll_back_exactly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B14: rotating caches are kept below the size from which on they overwrite."""
    from mlx_lm.models.cache import KVCache, RotatingKVCache

    monkeypatch.setattr(mlx_state, "make_prompt_cache", lambda model: [KVCache(), RotatingKVCache(max_size=33)])
    state = mlx_state.MlxState(folder, 512)
    monkeypatch.undo()
    assert state.window == 32
    path = some_ids(120)
    dice = np.random.default_rng(2)
    for length in range(2, 120):
        row(state, path[: length - 1] + some_ids(int(dice.integers(1, 8)), seed=length))
        logits = row(state, path[:length])
        assert {cache.offset for cache in state._cache} == {length - state._base}
    fresh = mlx_state.MlxState(folder, 512)
    np.testing.assert_allclose(logits, row(fresh, path[state._base : 119]), atol=2e-4)


@pytest.mark.model
@pytest.mark.slow
def test_the_default_model_drafts_its_own_greedy_text() -> None:
    """B7 on real weights: MLX proposes what a float32 torch forward pass of the same checkpoint ranks first."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from acespec.models.store import resolve
    from acespec.models.tokenizer import Tokenizer

    checkpoint = resolve("smollm2-135m", offline=True)
    path = Tokenizer.load(checkpoint).encode("The capital of France is")
    prompt_len = len(path)
    drafter = MlxDrafter(checkpoint)
    drafter.begin(turn(prompt_len, vocab=49152))
    for _ in range(12):
        path.append(drafter.propose(path)[0].token)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    with torch.no_grad():
        theirs = model(torch.tensor([path])).logits[0].argmax(-1).tolist()
    assert theirs[prompt_len - 1 : -1] == path[prompt_len:]
