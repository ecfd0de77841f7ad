"""The sampling pipeline against a naive reading of its own description, and the traps it was built around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from acespec.proto import filters, noise, sampling
from acespec.proto.sampling_params import SamplingParams

Row = NDArray[np.float32]
HOT = SamplingParams(temperature=1.0)


def row_of(seed: int, size: int = 50, spread: float = 3.0) -> Row:
    return (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)


def softmax(row: NDArray[np.floating]) -> NDArray[np.float64]:
    weights = np.exp(row.astype(np.float64) - np.max(row))
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities


def naive_kept(row: Row, params: SamplingParams) -> set[int]:
    """Top-k, top-p and min-p as one would explain them, in float64."""
    order = sorted(range(row.size), key=lambda i: (-row[i], i))
    if params.top_k:
        order = order[: params.top_k]
    probabilities = dict(zip(order, softmax(row[order]), strict=True))
    chosen, reached = [], 0.0
    for token in order:
        chosen.append(token)
        reached += probabilities[token]
        if reached >= params.top_p - 1e-9:
            break
    best = probabilities[order[0]]
    return {token for token in chosen if probabilities[token] >= params.min_p * best * (1 - 1e-6)}


def near_a_cut(row: Row, params: SamplingParams) -> bool:
    """Whether float32 and float64 may honestly disagree about some token."""
    ranked = np.sort(row)[::-1][: params.top_k or None]
    probabilities = softmax(ranked)
    sums = np.cumsum(probabilities)
    return bool(
        (np.abs(sums[:-1] - params.top_p) < 1e-5).any()
        or (np.abs(probabilities / probabilities[0] - params.min_p) < 1e-5 * params.min_p).any()
    )


FILTERS = st.builds(
    SamplingParams,
    temperature=st.just(1.0),
    top_k=st.sampled_from([0, 1, 2, 5, 20, 50, 1000]),
    top_p=st.sampled_from([1.0, 0.999, 0.95, 0.9, 0.5, 0.1, 0.001, 0.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
)


@given(params=FILTERS, seed=st.integers(0, 10**6), spread=st.sampled_from([0.0, 0.3, 2.0, 8.0]))
@settings(max_examples=300)
def test_filters_keep_what_their_description_says(params: SamplingParams, seed: int, spread: float) -> None:
    row = row_of(seed, spread=spread)
    if spread and near_a_cut(row, params):
        return
    out = sampling.processed(row, params, (), 0, row.size)
    assert set(np.flatnonzero(out > -np.inf)) == naive_kept(row, params)
    assert (out[out > -np.inf] == row[out > -np.inf]).all()


@given(params=FILTERS, seed=st.integers(0, 10**6), levels=st.integers(1, 4))
def test_ties_at_the_cut_keep_the_lowest_ids(params: SamplingParams, seed: int, levels: int) -> None:
    row = np.random.default_rng(seed).integers(0, levels, 40).astype(np.float32)
    out = sampling.processed(row, params, (), 0, row.size)
    for level in range(levels):
        ids = np.flatnonzero(row == level)
        kept = np.flatnonzero(out == level)
        assert kept.tolist() == ids[: kept.size].tolist()


@given(
    params=FILTERS,
    temperature=st.sampled_from([0.1, 0.7, 1.0, 2.0]),
    row_seed=st.integers(0, 10**6),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**31),
    spread=st.sampled_from([0.5, 5.0, 50.0]),
)
def test_the_short_ways_give_the_same_token_as_the_whole_row(
    params: SamplingParams, temperature: float, row_seed: int, seed: int, position: int, spread: float
) -> None:
    params = replace(params, temperature=temperature)
    row = row_of(row_seed, 300, spread)
    whole = sampling.processed(row, params, (), 0, 300) + noise.gumbel(seed, position, 300)
    assert sampling.sample(row, params, seed, position) == int(whole.argmax())
    proposed = sampling.propose(row, params, seed, position, 5)
    best = sorted(np.flatnonzero(whole > -np.inf), key=lambda i: (-whole[i], i))[:5]
    assert [token for token, _ in proposed] == best


def test_padding_is_never_sampled_however_good_it_looks() -> None:
    row = np.concatenate([row_of(1), np.full(14, 1e9, np.float32), np.full(1, np.nan, np.float32)])
    for params in (HOT, SamplingParams(), SamplingParams(temperature=0.5, top_p=0.9)):
        bare = [sampling.sample(row[:50], params, 3, t) for t in range(50)]
        assert [sampling.sample(row, params, 3, t, vocab_size=50) for t in range(50)] == bare
    assert sampling.processed(row, HOT, (), 0, 50).shape == (50,)


def test_a_row_shorter_than_the_vocabulary_never_gives_the_missing_ids() -> None:
    row = row_of(2)
    out = sampling.processed(row, HOT, (), 0, 60)
    assert (out[50:] == -np.inf).all()
    assert all(token < 50 for token, _ in sampling.propose(row, HOT, 1, 2, 60, vocab_size=60))
    assert len(sampling.propose(row, HOT, 1, 2, 60, vocab_size=60)) == 50


@pytest.mark.parametrize("params", [SamplingParams(), HOT, SamplingParams(temperature=1.0, top_p=0.9, top_k=9)])
def test_masks_leave_the_distribution_of_what_is_left(params: SamplingParams) -> None:
    """Drawn as if the removed tokens had never had a chance: same order, same noise, filters over the rest only."""
    row = row_of(11)
    allowed = np.zeros(50, np.bool_)
    allowed[[3, 8, 9, 20, 21, 22, 40]] = True
    masked = np.where(allowed, row, -np.inf).astype(np.float32)
    drawn = [sampling.sample(row, params, 5, t, allowed=allowed) for t in range(300)]
    assert drawn == [sampling.sample(masked, params, 5, t) for t in range(300)]
    banned = [8, 20, 99, -3]
    masked[[8, 20]] = -np.inf
    drawn = [sampling.sample(row, params, 5, t, allowed=allowed, banned=banned) for t in range(300)]
    assert drawn == [sampling.sample(masked, params, 5, t) for t in range(300)]
    assert not set(drawn) - {3, 9, 21, 22, 40}
    proposed = [sampling.propose(row, params, 5, t, 1, banned=banned)[0][0] for t in range(100)]
    assert proposed == [sampling.sample(row, params, 5, t, banned=banned) for t in range(100)]


@pytest.mark.parametrize("params", [SamplingParams(), HOT])
def test_a_ban_that_would_leave_nothing_is_lifted(params: SamplingParams) -> None:
    row = row_of(12, 6)
    assert sampling.sample(row, params, 1, 2, banned=range(6)) == sampling.sample(row, params, 1, 2)
    only = np.array([False, False, True, False, True, False])
    assert sampling.sample(row, params, 1, 2, banned=[2, 4], allowed=only) in (2, 4)
    assert sampling.sample(row, params, 1, 2, banned=[2], allowed=only) == 4


@pytest.mark.parametrize("params", [SamplingParams(), HOT])
def test_nothing_finite_under_a_mask_gives_the_lowest_id_of_the_mask(params: SamplingParams) -> None:
    row = np.array([5.0, 4.0, -np.inf, np.nan, -np.inf], np.float32)
    allowed = np.array([False, False, False, True, True])
    assert sampling.sample(row, params, 1, 2, allowed=allowed) == 3
    tied = np.array([9.0, 1.0, 1.0, 0.0, 1.0], np.float32)
    assert sampling.sample(tied, SamplingParams(), 1, 2, banned=[0], allowed=np.ones(5, np.bool_)) == 1


@pytest.mark.parametrize("params", [SamplingParams(), HOT, SamplingParams(temperature=1.0, top_p=0.9, top_k=9)])
def test_nan_and_infinities_do_no_harm(params: SamplingParams) -> None:
    row = row_of(3)
    row[[0, 7]] = np.nan
    row[5] = -np.inf
    assert all(sampling.sample(row, params, 1, t) not in (0, 5, 7) for t in range(200))
    row[20] = np.inf
    assert {sampling.sample(row, params, 1, t) for t in range(200)} == {20}
    banned = replace(params, logit_bias=((20, -np.inf),))
    assert all(sampling.sample(row, banned, 1, t) not in (0, 5, 7, 20) for t in range(200))
    for empty in (np.full(50, np.nan, np.float32), np.full(50, -np.inf, np.float32)):
        assert sampling.sample(empty, params, 1, 2) == 0
        assert sampling.propose(empty, params, 1, 2, 3) == [(0, 1.0)]


def test_the_input_row_is_left_alone() -> None:
    row = row_of(4)
    row.setflags(write=False)
    params = SamplingParams(1.3, 5, 0.9, 0.1, 1.2, 0.3, 0.2, ((1, 2.0),))
    before = row.copy()
    sampling.sample(row, params, 1, 9, prefix=[1, 2, 3], prompt_len=1)
    sampling.propose(row, params, 1, 9, 3, prefix=[1, 2, 3], prompt_len=1)
    assert np.array_equal(row, before)


def test_greedy_ties_go_to_the_lowest_id_and_ignore_noise_and_filters() -> None:
    row = np.array([0, 5, 1, 5, 5], np.float32)
    params = SamplingParams(temperature=0.0, top_k=1, top_p=0.1, min_p=0.9)
    assert {sampling.sample(row, params, s, t) for s in range(9) for t in range(9)} == {1}
    assert [t for t, _ in sampling.propose(row, params, 1, 2, 4)] == [1, 3, 4, 2]
    assert np.array_equal(sampling.processed(row, params, (), 0, 5), row)


def test_equal_scores_go_to_the_lowest_id() -> None:
    """At 2^30 float32 steps by 64 or more, so that noise is rounded away and all scores are equal."""
    row = np.full(40, 2.0**30, np.float32)
    assert sampling.sample(row, HOT, 1, 2) == 0
    assert [t for t, _ in sampling.propose(row, HOT, 1, 2, 3)] == [0, 1, 2]


def test_temperature_divides_and_bias_comes_before_it() -> None:
    row = row_of(5)
    params = SamplingParams(temperature=0.5, logit_bias=((3, 1.5), (49, -2.0), (99, 5.0), (-1, 5.0)))
    expected = row.copy()
    expected[3] += np.float32(1.5)
    expected[49] -= np.float32(2.0)
    assert np.array_equal(sampling.processed(row, params, (), 0, 50), expected / np.float32(0.5))


@pytest.mark.parametrize("prefix", [[1, 2, 2, 3, 3, 3, 4], (1, 2, 2, 3, 3, 3, 4), [1, 2, 2, 3, 3, 3, 4, 77, -5]])
def test_penalties_see_the_prompt_or_the_generated_part_only(prefix: Sequence[int]) -> None:
    row = np.array([1.0, 2.0, -2.0, 3.0, -4.0, 5.0], np.float32)
    prompt_len = 2  # prompt: 1 2; generated: 2 3 3 3 4

    repetition = sampling.processed(row, SamplingParams(repetition_penalty=2.0), prefix, prompt_len, 6)
    assert repetition.tolist() == [1.0, 1.0, -4.0, 1.5, -8.0, 5.0]
    frequency = sampling.processed(row, SamplingParams(frequency_penalty=0.5), prefix, prompt_len, 6)
    assert frequency.tolist() == [1.0, 2.0, -2.5, 1.5, -4.5, 5.0]
    presence = sampling.processed(row, SamplingParams(presence_penalty=0.5), prefix, prompt_len, 6)
    assert presence.tolist() == [1.0, 2.0, -2.5, 2.5, -4.5, 5.0]
    both = SamplingParams(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25, logit_bias=((3, 1.0),))
    assert sampling.processed(row, both, prefix, prompt_len, 6).tolist() == [1.0, 1.0, -4.75, 0.75, -8.75, 5.0]


def test_proposals_carry_the_filtered_probabilities() -> None:
    row = row_of(6)
    params = SamplingParams(temperature=0.7, top_k=8)
    out = sampling.processed(row, params, (), 0, 50)
    proposed = sampling.propose(row, params, 5, 6, 20)
    assert len(proposed) == 8
    for token, probability in proposed:
        assert probability == pytest.approx(softmax(out)[token], rel=1e-5)
    assert sum(probability for _, probability in proposed) == pytest.approx(1.0)
    assert sampling.propose(row, params, 5, 6, 0) == []


def test_first_proposal_is_the_sample_of_the_same_row() -> None:
    for params in (SamplingParams(), HOT, SamplingParams(temperature=0.6, top_p=0.8, min_p=0.05)):
        for position in range(100):
            row = row_of(position)
            drawn = sampling.sample(row, params, 9, position)
            assert sampling.propose(row, params, 9, position, 3)[0][0] == drawn


def test_position_and_seed_are_what_changes_a_sample() -> None:
    row = row_of(7, spread=0.5)
    by_position = [sampling.sample(row, HOT, 1, t) for t in range(50)]
    assert len(set(by_position)) > 10
    assert by_position == [sampling.sample(row, HOT, 1, t) for t in range(50)]
    assert by_position != [sampling.sample(row, HOT, 2, t) for t in range(50)]


def test_hopeless_tokens_are_left_out_for_good_reason() -> None:
    """The span of the noise is below the margin under which a token is not even tried."""
    assert float(sampling._HOPELESS) > noise.HIGHEST - noise.LOWEST + 5


def test_masses_are_exact_integers_close_to_the_exponential() -> None:
    x = -np.abs(np.random.default_rng(8).standard_normal(100_000) * 8).astype(np.float32)
    x = np.concatenate([x, np.array([0.0, -0.34657, -0.34658, -79.9, -80.0, -81.0, -1e30, -np.inf], np.float32)])
    masses = filters.mass(x)
    exact = np.exp(x.astype(np.float64)) * filters.MASS_OF_BEST
    assert masses.dtype == np.int64
    assert masses[-8] == filters.MASS_OF_BEST
    assert (masses >= 0).all()
    assert (np.abs(masses - exact) <= 1 + 3e-7 * exact).all()


def test_the_exponential_has_the_same_bits_in_torch() -> None:
    torch = pytest.importorskip("torch")
    x = -np.abs(np.random.default_rng(9).standard_normal(300_000) * 20).astype(np.float32)
    t = torch.maximum(torch.from_numpy(x), torch.tensor(-80.0))
    rounder = 1.5 * 2.0**23
    k = (t * torch.tensor(1.442695) + rounder) - rounder
    r = (t - k * 0.693359375) - k * torch.tensor(-2.1219444e-4)
    power = r * float(filters.EXP[-1])
    for coefficient in filters.EXP[-2:0:-1]:
        power = (power + float(coefficient)) * r
    power = (power + float(filters.EXP[0])) * ((k.to(torch.int32) + 167) << 23).view(torch.float32)
    assert np.array_equal(power.to(torch.int64).numpy(), filters.mass(x))


def test_top_p_of_a_flat_large_row_keeps_the_right_number_of_lowest_ids() -> None:
    row = np.zeros(20_000, np.float32)
    assert np.array_equal(filters.top_p(row, 0.25), np.arange(5000))
    assert np.array_equal(filters.top_k(row, 7), np.arange(7))
