"""Bits per draft, envelopes, batching and how often drafts match: printed figures and laws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acespec.sim.theory.batching import plan_batches
from acespec.sim.theory.bits import (
    LLAMA3_VOCAB,
    QUIC_DATAGRAM_BYTES,
    QWEN3_VOCAB,
    TOP_K_PAIRS,
    WORD_PAIR,
    distribution_bits,
    id_and_q_bits,
    id_bits,
    lattice_bits,
    message_ms,
    messages_per_second,
    packed_bytes,
    sparse_lattice_bits,
    top_k_bits,
    top_k_reply_bits,
)
from acespec.sim.theory.coupling import (
    coupling_bounds,
    coupling_match,
    excess,
    optimal_acceptance,
    residual_tv_bound,
    thinning_acceptance,
    thinning_tries,
    total_variation,
)


def test_bits_of_every_scheme_for_qwen3() -> None:
    V = QWEN3_VOCAB
    assert distribution_bits(V) == 2_430_976 == 16 * V
    assert f"{distribution_bits(V) / 50_000:.1f}" == "48.6"
    assert (WORD_PAIR, id_and_q_bits(V), id_and_q_bits(V, 32)) == (64, 34, 50)
    assert [top_k_reply_bits(10, pair) for pair in TOP_K_PAIRS] == [640, 800]
    assert top_k_bits(V, 16) == 544
    assert [round(lattice_bits(V, steps)) for steps in (100, 1000)] == [1197, 8688]
    assert [round(sparse_lattice_bits(V, K, 100)) for K in (8, 16, 64)] == [157, 292, 959]
    assert (id_bits(V), id_bits(LLAMA3_VOCAB)) == (18, 17)


def test_a_lattice_counts_its_points() -> None:
    points = [p for p in product(range(4), repeat=3) if sum(p) == 3]
    assert lattice_bits(3, 3) == pytest.approx(math.log2(len(points)))


def test_the_envelope_dominates_at_50_kbps() -> None:
    five = packed_bytes(5, QWEN3_VOCAB)
    assert five == 12
    sent = [message_ms(0, 50), message_ms(five, 50), message_ms(five, 50, QUIC_DATAGRAM_BYTES)]
    assert [f"{ms:.1f}" for ms in sent] == ["15.0", "17.0", "10.7"]
    assert 50 < messages_per_second(five, 50) < 60


@pytest.mark.parametrize(("t_d", "ms", "sizes"), [(5, 56.44, (4, 4)), (20, 175.36, (1,) * 8)])
def test_batches_of_eight_as_pipesd_has_them(t_d: float, ms: float, sizes: tuple[int, ...]) -> None:
    plan = plan_batches(8, t_d, 15, 0.36)
    assert plan.ms == pytest.approx(ms, abs=1e-9)
    assert plan.sizes == sizes


def compositions(n: int) -> list[tuple[int, ...]]:
    return [()] if n == 0 else [(k, *rest) for k in range(1, n + 1) for rest in compositions(n - k)]


def last_arrival(sizes: Sequence[int], t_d: float, envelope: float, draft: float) -> float:
    made, free = 0, 0.0
    for size in sizes:
        made += size
        free = max(free, made * t_d) + envelope + draft * size
    return free


@given(st.integers(1, 8), st.floats(0, 40), st.floats(0, 40), st.floats(0, 5))
def test_no_other_split_arrives_earlier(drafts: int, t_d: float, envelope: float, draft: float) -> None:
    plan = plan_batches(drafts, t_d, envelope, draft)
    assert sum(plan.sizes) == drafts
    assert plan.ms == pytest.approx(last_arrival(plan.sizes, t_d, envelope, draft))
    assert plan.ms == pytest.approx(min(last_arrival(s, t_d, envelope, draft) for s in compositions(drafts)))


def test_no_drafts_make_no_batch() -> None:
    assert plan_batches(0, 5, 15, 0.36).sizes == ()


def test_shared_noise_on_the_printed_pair() -> None:
    p, q = (0.1, 0.5, 0.4), (0.5, 0.4, 0.1)
    assert f"{coupling_match(p, q):.4f}" == "0.5279"
    assert coupling_bounds(total_variation(p, q)) == pytest.approx((0.6 / 1.4, 0.6))
    assert f"{optimal_acceptance(total_variation(p, q)):.4f}" == "0.6000"


@st.composite
def distributions(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    size = draw(st.integers(1, 6))
    weights = st.lists(st.integers(0, 50), min_size=size, max_size=size).filter(any)
    p, q = draw(weights), draw(weights)
    return [w / sum(p) for w in p], [w / sum(q) for w in q]


@given(distributions())
def test_shared_noise_stays_within_its_bounds(pair: tuple[list[float], list[float]]) -> None:
    p, q = pair
    least, most = coupling_bounds(total_variation(p, q))
    assert least - 1e-9 <= coupling_match(p, q) <= most + 1e-9
    assert coupling_match(p, p) == pytest.approx(1.0)


def residual(p: Sequence[float], q: Sequence[float]) -> list[float]:
    mass = excess(p, q)
    return [max(0.0, pi - qi) / mass for pi, qi in zip(p, q, strict=True)]


@given(distributions(), st.integers(1, 6))
def test_a_truncated_residual_is_as_near_as_its_certificate_says(pair: tuple[list[float], list[float]], K: int) -> None:
    p, q = pair
    order = sorted(range(len(p)), key=lambda token: -p[token])
    p, q = [p[token] for token in order], [q[token] for token in order]
    if excess(p[:K], q[:K]) < 1e-9:
        return
    sent = residual(p[:K], q[:K]) + [0.0] * (len(p) - len(p[:K]))
    assert total_variation(residual(p, q), sent) <= residual_tv_bound(p[:K], q[:K]) + 1e-9
    assert residual_tv_bound(p, q) == pytest.approx(0.0, abs=1e-9)


def test_the_certificate_weighs_what_was_not_sent() -> None:
    assert residual_tv_bound((0.5, 0.3), (0.2, 0.3)) == pytest.approx(0.2 / (0.3 + 0.2))


@given(distributions())
def test_thinned_draws_have_the_exact_residual(pair: tuple[list[float], list[float]]) -> None:
    p, q = pair
    kept = [pi * thinning_acceptance(pi, qi) if pi else 0.0 for pi, qi in zip(p, q, strict=True)]
    tv = total_variation(p, q)
    assert thinning_tries(tv) == (pytest.approx(1 / sum(kept)) if sum(kept) else math.inf)
    if tv > 1e-9:
        assert [mass / sum(kept) for mass in kept] == pytest.approx(residual(p, q))


@pytest.mark.parametrize(
    ("optimal", "coupled"), [(0.928, 0.925), (0.824, 0.809), (0.872, 0.864), (0.937, 0.932), (0.810, 0.793)]
)
def test_measured_coupling_obeys_the_bounds(optimal: float, coupled: float) -> None:
    least, most = coupling_bounds(1 - optimal)
    assert least < coupled < most
    assert 0.979 <= coupled / optimal <= 0.9975
